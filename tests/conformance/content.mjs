// Content blocks that several parts of the fixture return.

/** A red pixel. */
export const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
/** A tenth of a second of silence would do; an empty WAVE file does as well. */
export const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=';

export const text = value => ({ content: [{ type: 'text', text: value }] });
export const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
export const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });
