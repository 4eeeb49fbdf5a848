// What the page knows of the runs, and the events that bring it.

export const runs = new Map(); // by ID, in the server's order
const empty = () => ({ series: new Map(), machine: new Map(), evaluations: [], log: [] });

let cursor = '';
let source = null;

// connect opens the stream of events; changed(id) is called after each, state(text) with
// the state of the connection.
export function connect(width, changed, state) {
  const at = `/events?width=${width}` + (cursor ? `&cursor=${encodeURIComponent(cursor)}` : '');
  source = new EventSource(at);
  source.onopen = () => state('live');
  source.onerror = () => {
    state('reconnecting');
    if (source.readyState === EventSource.CLOSED) { // the browser gave up
      setTimeout(() => connect(width, changed, state), 2000);
    }
  };
  source.addEventListener('runs', (e) => {
    cursor = e.lastEventId;
    list(JSON.parse(e.data));
    changed(null);
  });
  source.addEventListener('run', (e) => {
    cursor = e.lastEventId;
    const news = JSON.parse(e.data);
    take(news);
    changed(news.id);
  });
}

// list sets which runs are shown; what is known of those that stay is kept.
function list(entries) {
  const before = new Map(runs);
  runs.clear();
  for (const e of entries) {
    const run = before.get(e.id) || { head: null, info: null, text: '', ...empty() };
    runs.set(e.id, Object.assign(run, { id: e.id, name: e.name, path: e.path, missing: e.missing || '' }));
  }
}

function take(news) {
  const run = runs.get(news.id);
  if (!run) return;
  if (news.reset) Object.assign(run, empty());
  if (news.head) run.head = news.head;
  if (news.info) run.info = news.info;
  if (typeof news.text === 'string') run.text = news.text;
  extend(run.series, news.series);
  extend(run.machine, news.machine);
  for (const e of news.evaluations || []) {
    if (run.evaluations.length && run.evaluations.at(-1).update >= e.update) continue;
    run.evaluations.push(e);
  }
  run.log = run.log.concat(news.log || []).slice(-200);
}

// extend adds points after those that are there.
function extend(to, list) {
  for (const s of list || []) {
    const have = to.get(s.name);
    if (!have) { to.set(s.name, s); continue; }
    const last = have.x.length ? have.x.at(-1) : -Infinity;
    for (let i = 0; i < s.x.length; i++) {
      if (s.x[i] > last) { have.x.push(s.x[i]); have.y.push(s.y[i]); }
    }
    have.points += s.points;
    have.not_finite = (have.not_finite || 0) + (s.not_finite || 0);
  }
}

// range fetches a part of a run, thinned for it.
export async function range(id, width, part) {
  const q = new URLSearchParams({ run: id, width, ...part });
  const answer = await fetch(`/series?${q}`);
  if (!answer.ok) throw new Error(await answer.text());
  const [news] = await answer.json();
  const out = empty();
  extend(out.series, news.series);
  extend(out.machine, news.machine);
  return out;
}

const thinning = new Set();

// thin replaces what has grown to many times the points that can be seen.
export async function thin(run, width) {
  const most = Math.max(0, ...[...run.series.values(), ...run.machine.values()].map((s) => s.x.length));
  if (most < 8 * width || thinning.has(run.id)) return;
  thinning.add(run.id);
  try {
    const whole = await range(run.id, width, {});
    for (const kind of ['series', 'machine']) run[kind] = whole[kind];
  } catch { /* the next event tries again */ } finally { thinning.delete(run.id); }
}
