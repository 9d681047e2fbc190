// The reference server that does a little of everything, as it was in 2025 and as it is, over each of its transports.
// Left out are the tools whose results name the session (`toggle-…`), and those for clients that execute tasks.
const CLOCK = [/created at [^"]*/g, 'created at some time'];
const YES = { action: 'accept' };
const EVERY_WAY = [YES, { action: 'decline' }, { action: 'cancel' }];
const YES_OR_NO = EVERY_WAY.slice(0, 2);

const tool = (name, args = {}, more = {}) => ({ kind: 'tool', name, args, ...more });
const prompt = (name, args = {}, more = {}) => ({ kind: 'prompt', name, args, ...more });
const resource = (name, more = {}) => ({ kind: 'resource', name, ...more });
const complete = (ref, name, value) => ({ kind: 'complete', args: { ref, argument: { name, value } } });

const favourites = { color: 'teal', number: 7, pets: 'cats' };
const year2025 = [
  tool('echo', { message: 'hello "é" 漢 😀' }),
  tool('echo', {}, { label: 'echo without its argument' }),
  tool('add', { a: 2, b: 40.5 }),
  tool('printEnv'),
  tool('getTinyImage'),
  tool('annotatedMessage', { messageType: 'error', includeImage: true }),
  tool('getResourceReference', { resourceId: 2 }),
  tool('getResourceLinks', { count: 3 }),
  tool('structuredContent', { location: 'Oslo' }),
  tool('longRunningOperation', { duration: 0.1, steps: 2 }, { progress: 2 }),
  tool('no_such_tool'),
  prompt('simple_prompt'),
  prompt('complex_prompt', { temperature: '0.5', style: 'formal' }),
  prompt('resource_prompt', { resourceId: '3' }),
  prompt('resource_prompt', { resourceId: 'three' }, { label: 'resource_prompt with a wrong argument' }),
  resource('test://static/resource/1'),
  resource('test://static/resource/2'),
  resource('test://static/resource/101'),
  complete({ type: 'ref/prompt', name: 'complex_prompt' }, 'style', 'f'),
  complete({ type: 'ref/resource', uri: 'test://static/resource/{id}' }, 'id', '1'),
  tool('startElicitation', {}, { ways: EVERY_WAY, fields: favourites, asks: 1 }),
  tool('sampleLLM', { prompt: 'Capital of France?', maxTokens: 20 }, { ways: YES_OR_NO, asks: 1 }),
  tool('listRoots', {}, { until: 'file:///fixture/b' })
];

const everyField = {
  name: 'Ada', check: true, firstLine: 'It was a bright cold day.', email: 'ada@example.com', homepage: 'https://example.com/',
  birthdate: '1815-12-10', integer: 7, number: 3.5, untitledSingleSelectEnum: 'Ross', untitledMultipleSelectEnum: ['Piano', 'Bass'],
  titledSingleSelectEnum: 'hero-2', titledMultipleSelectEnum: ['fish-3'], legacyTitledEnum: 'pet-4'
};
const visit = { url: 'https://example.com/login', message: 'Sign in, please.', elicitationId: 'visit-1' };
const year2026 = [
  tool('echo', { message: 'hello "é" 漢 😀' }),
  tool('echo', {}, { label: 'echo without its argument' }),
  tool('get-sum', { a: 2, b: 40.5 }),
  tool('get-env'),
  tool('get-tiny-image'),
  tool('get-annotated-message', { messageType: 'error', includeImage: true }),
  tool('get-resource-reference', { resourceType: 'Text', resourceId: 2 }, { scrub: [CLOCK] }),
  tool('get-resource-links', { count: 3 }),
  tool('get-structured-content', { location: 'Chicago' }),
  tool('gzip-file-as-resource', { name: 'hello.gz', data: 'data:text/plain,hello', outputType: 'resource' }),
  tool('trigger-long-running-operation', { duration: 0.1, steps: 2 }, { progress: 2 }),
  // The TypeScript client 1.x knows from the list that this would fail, and does not call it.
  tool('simulate-research-query', { topic: 'gateways' }, { label: 'a tool that only runs as a task', truthBy: 'py' }),
  tool('no_such_tool'),
  prompt('simple-prompt'),
  prompt('args-prompt', { city: 'Oslo', state: 'Norway' }),
  prompt('completable-prompt', { department: 'Sales', name: 'Eve' }),
  prompt('resource-prompt', { resourceType: 'Text', resourceId: '3' }, { scrub: [CLOCK] }),
  prompt('args-prompt', {}, { label: 'args-prompt without its argument' }),
  resource('demo://resource/static/document/features.md'),
  resource('demo://resource/dynamic/text/5', { scrub: [CLOCK] }),
  resource('demo://resource/dynamic/text/five'),
  complete({ type: 'ref/prompt', name: 'completable-prompt' }, 'department', 'S'),
  complete({ type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, 'resourceId', '7'),
  tool('trigger-elicitation-request', {}, { ways: EVERY_WAY, fields: everyField, asks: 1 }),
  tool('trigger-sampling-request', { prompt: 'Capital of France?', maxTokens: 20 }, { ways: YES_OR_NO, asks: 1 }),
  tool('trigger-url-elicitation', visit, { ways: EVERY_WAY, asks: 1 }),
  tool('trigger-url-elicitation', { ...visit, errorPath: true }, {
    label: 'trigger-url-elicitation by an error', ways: [YES], asks: 2, endsAndRunsAgain: true
  }),
  tool('get-roots-list', {}, { until: 'file:///fixture/b' })
];

const version = (year, cases) => ['stdio', 'sse', 'http'].map(transport => ({
  label: `everything-${year}-${transport}`, transport, cases,
  program: { node: `everything-${year}`, args: [{ http: 'streamableHttp' }[transport] ?? transport] }
}));

export const everything = [...version(2025, year2025), ...version(2026, year2026)];
