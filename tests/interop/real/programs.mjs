// Real legacy servers that nobody here wrote, unmodified and at locked versions, and what is called of each. A program is
// `node` (a package and its arguments) or `python` (a module and its arguments), with `env` beside what all get; a case is a
// job of ../README.md with
//   label      if its name is not enough             ways    the answers, one test each, of a case that asks
//   fields     what is filled into forms             asks    how many questions there are, when all are accepted
//   progress   how many notifications there are      scrub   what is different in each result: [pattern, replacement]
//   truthBy    the language of the legacy client that is compared, if not the same
//   until      a word: the call is repeated until it is in the result, because the server learns it in the background
// `prepare` fills the folder `home` that the program works in; arguments and cases may be functions of it, and of a `key`
// that no other call uses.
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { everything } from './everything.mjs';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const tool = (name, args = {}, more = {}) => ({ kind: 'tool', name, args, ...more });

function fillFolders({ home }) {
  for (const folder of ['given', 'given/inner', 'rooted']) mkdirSync(path.join(home, folder), { recursive: true });
  writeFileSync(path.join(home, 'given/note.txt'), 'one\ntwo é 漢\nthree\n');
  writeFileSync(path.join(home, 'given/inner/deep.txt'), 'deep\n');
  writeFileSync(path.join(home, 'given/pixel.png'), Buffer.from(PIXEL, 'base64'));
}

const TIMES = [/(created|modified|accessed): [^\\"]*/g, '$1: some time'];
const files = ({ home }) => {
  const given = path.join(home, 'given');
  const at = name => path.join(given, name);
  return [
    tool('list_allowed_directories'),
    tool('list_directory', { path: given }),
    tool('directory_tree', { path: path.join(given, 'inner') }),
    tool('read_text_file', { path: at('note.txt') }),
    tool('read_text_file', { path: at('note.txt'), head: 1 }, { label: 'read_text_file, its first line' }),
    tool('read_text_file', { path: path.join(home, 'rooted/other.txt') }, { label: 'read_text_file that is not allowed' }),
    tool('read_media_file', { path: at('pixel.png') }),
    tool('read_multiple_files', { paths: [at('note.txt'), at('inner/deep.txt'), at('no-such.txt')] }),
    tool('search_files', { path: given, pattern: '**/*.txt' }),
    tool('get_file_info', { path: at('note.txt') }, { scrub: [TIMES] }),
    tool('edit_file', { path: at('note.txt'), edits: [{ oldText: 'one', newText: 'uno' }], dryRun: true }),
    tool('write_file', key => ({ path: at(`${key}.txt`), content: 'written' })),
    tool('create_directory', key => ({ path: at(`inner/${key}`) })),
    tool('read_text_file', {}, { label: 'read_text_file without its argument' }),
    tool('no_such_tool')
  ].map(plain => ({ capabilities: {}, ...plain }));
};

const filesystem = year => ({
  label: `filesystem-${year}`, transport: 'stdio', prepare: fillFolders, cases: files,
  program: { node: `filesystem-${year}`, args: ({ home }) => [path.join(home, 'given')] },
  // Asked for after `initialized`, in no call; what is answered takes the place of the folders on the command line.
  earlyRoots: ({ home }) => ({
    roots: [{ uri: `file://${path.join(home, 'rooted')}`, name: 'rooted' }],
    call: tool('list_allowed_directories', {}, { until: 'rooted' })
  })
});

const entity = key => ({ name: key, entityType: 'person', observations: ['writes programs'] });
const graph = [
  tool('create_entities', key => ({ entities: [entity(key), entity(`${key}-friend`)] })),
  tool('create_relations', key => ({ relations: [{ from: key, to: `${key}-friend`, relationType: 'knows' }] })),
  tool('create_entities', { entities: [entity('Ada'), entity('Grace')] }, { label: 'create_entities that are known' }),
  tool('add_observations', { observations: [{ entityName: 'Ada', contents: ['likes é and 漢'] }] }),
  tool('add_observations', { observations: [{ entityName: 'nobody', contents: ['x'] }] }, { label: 'add_observations to nobody' }),
  tool('open_nodes', { names: ['Ada', 'Grace'] }),
  tool('search_nodes', { query: 'likes' }),
  tool('delete_entities', { entityNames: ['nobody'] }),
  tool('create_entities', {}, { label: 'create_entities without its argument' }),
  tool('no_such_tool')
];

/** Ada and Grace are known from the start: what is added to them is the same for all who add it. */
function fillGraph({ home }) {
  const known = [{ ...entity('Ada'), observations: ['likes é and 漢'] }, entity('Grace')];
  writeFileSync(path.join(home, 'graph.json'), known.map(one => JSON.stringify({ type: 'entity', ...one })).join('\n'));
}

const memory = (year, more) => ({
  label: `memory-${year}`, transport: 'stdio', prepare: fillGraph, cases: graph,
  program: { node: `memory-${year}`, args: [], env: ({ home }) => ({ MEMORY_FILE_PATH: path.join(home, 'graph.json') }) },
  ...more
});

const HISTORY = [/(thoughtHistoryLength\\*": )\d+/g, '$1N']; // of the session
const thought = { thought: 'First, é.', nextThoughtNeeded: true, thoughtNumber: 1, totalThoughts: 2 };
const thinking = year => ({
  label: `sequential-thinking-${year}`, transport: 'stdio',
  program: { node: `sequential-thinking-${year}`, args: [] },
  cases: [
    tool('sequentialthinking', thought, { scrub: [HISTORY] }),
    tool('sequentialthinking', { thought: 'no number' }, { label: 'sequentialthinking without its arguments' }),
    tool('no_such_tool')
  ]
});

const NOW = [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/g, 'some time'];
const DAY = [/(\d{4}-\d\d-\d\d|\b[A-Z][a-z]+day\b)/g, 'some day'];
const time = {
  label: 'time', transport: 'stdio', program: { python: 'mcp_server_time', args: ['--local-timezone', 'Europe/Oslo'] },
  cases: [
    tool('get_current_time', { timezone: 'Asia/Tokyo' }, { scrub: [NOW, DAY] }),
    tool('get_current_time', { timezone: 'Moon/Crater' }, { label: 'get_current_time of nowhere' }),
    tool('convert_time', { source_timezone: 'Asia/Tokyo', time: '12:30', target_timezone: 'Asia/Kolkata' }, { scrub: [DAY] }),
    tool('convert_time', { time: '25:00' }, { label: 'convert_time without its arguments' })
  ]
};

const fetching = {
  label: 'fetch', transport: 'stdio', site: true,
  // Without Node on its path the program reads pages by itself; with it, it would want to install a package first.
  program: { python: 'mcp_server_fetch', args: ['--allow-private-ips'], env: { PATH: '/nowhere' } },
  cases: ({ site }) => [
    tool('fetch', { url: `${site}/page` }),
    tool('fetch', { url: `${site}/page`, raw: true, max_length: 40 }, { label: 'fetch, raw and cut' }),
    tool('fetch', { url: `${site}/private/page` }, { label: 'fetch what robots may not' }),
    tool('fetch', { url: `${site}/missing` }, { label: 'fetch what is not there' }),
    tool('fetch', { url: 'not a url' }, { label: 'fetch nothing' }),
    { kind: 'prompt', name: 'fetch', args: { url: `${site}/page` } },
    { kind: 'prompt', name: 'fetch', args: { url: `${site}/missing` }, label: 'prompt of what is not there' },
    { kind: 'prompt', name: 'no_such_prompt', args: {} }
  ]
};

/** A repository with two commits, a changed file and a new one. */
function fillRepository({ home }) {
  const who = { GIT_AUTHOR_NAME: 'Ada', GIT_AUTHOR_EMAIL: 'ada@example.com', GIT_AUTHOR_DATE: '2025-01-02T03:04:05Z' };
  const also = { GIT_COMMITTER_NAME: 'Ada', GIT_COMMITTER_EMAIL: 'ada@example.com', GIT_COMMITTER_DATE: '2025-01-02T03:04:05Z' };
  const env = { PATH: process.env.PATH, HOME: home, GIT_CONFIG_NOSYSTEM: '1', ...who, ...also };
  const git = (...args) => execFileSync('git', args, { cwd: home, env, stdio: 'ignore' });
  const write = text => writeFileSync(path.join(home, 'file.txt'), text);
  git('init', '--quiet', '--initial-branch=main');
  for (const text of ['one\n', 'one\ntwo é\n']) {
    write(text);
    git('add', 'file.txt');
    git('commit', '--quiet', '-m', `Write ${text.length} characters`);
  }
  write('one\ntwo é\nthree\n');
}

const git = {
  label: 'git', transport: 'stdio', prepare: fillRepository,
  program: { python: 'mcp_server_git', args: ({ home }) => ['--repository', home], env: { GIT_CONFIG_NOSYSTEM: '1' } },
  cases: ({ home: repo_path }) => [
    tool('git_status', { repo_path }),
    tool('git_log', { repo_path, max_count: 5 }),
    tool('git_diff_unstaged', { repo_path }),
    tool('git_show', { repo_path, revision: 'HEAD' }),
    tool('git_diff', { repo_path, target: 'HEAD~1' }),
    tool('git_branch', { repo_path, branch_type: 'local' }),
    tool('git_create_branch', key => ({ repo_path, branch_name: key })),
    tool('git_show', { repo_path, revision: 'no-such-revision' }, { label: 'git_show of nothing' }),
    tool('git_status', { repo_path: '/' }, { label: 'git_status elsewhere' }),
    tool('no_such_tool')
  ]
};

const updates = {
  listens: key => ({
    uris: ['memory://knowledge-graph'], changes: 1, calls: [{ name: 'create_entities', args: { entities: [entity(key)] } }]
  })
};

export const programs = [
  ...everything, filesystem(2025), filesystem(2026), memory(2025, {}), memory(2026, updates), thinking(2025), thinking(2026), time,
  fetching, git
];
