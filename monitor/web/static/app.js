// The page: which runs are seen, their panels, and all that is said of them in words.
import { ago, bytes, clock, duration, figure, known, make, percent } from './format.js';
import { connect, range, runs, thin } from './store.js';
import { Plot, color } from './plots.js';

const $ = (id) => document.getElementById(id);
const hidden = new Set(); // IDs of runs that are not seen
let current = null; // ID of the run that words are about
const zoomed = { updates: null, time: null }; // [from, to]
const parts = { updates: new Map(), time: new Map() }; // by ID, fetched for the zoom
const plots = new Map(); // by section and panel
let smooth = 0, log = false, scheduled = false;

const width = Math.min(2000, Math.max(300, Math.round((document.querySelector('main').clientWidth || 800) * (window.devicePixelRatio || 1))));
const seen = () => [...runs.values()].filter((r) => !hidden.has(r.id) && r.head);
const indexOf = (run) => [...runs.keys()].indexOf(run.id);
const theme = () => document.documentElement.dataset.theme || 'auto';

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; show(); });
}

function show() {
  const list = seen();
  if (!current || !runs.has(current) || hidden.has(current)) current = (list.find((r) => r.head.state === 'running') || list[0] || { id: null }).id;
  showRuns();
  const run = runs.get(current);
  showPanels('series', false, list);
  showPanels('machine', true, list);
  $('metrics-title').hidden = !$('metrics').children.length;
  $('machine-title').hidden = !list.some((r) => r.machine.size);
  showWords(run && run.head ? run : null, list);
  $('whole').hidden = !zoomed.updates && !zoomed.time;
  document.title = run && run.head && known(run.head.latest.loss) ? `${figure(run.head.latest.loss)} · ${run.name} · snug` : 'snug monitor';
}

// ---- runs

function showRuns() {
  const all = [...runs.values()];
  const several = all.length > 1;
  $('runs').replaceChildren(...all.map((run, i) => runCard(run, i, several)));
  const nothing = all.every((r) => r.missing);
  $('nothing').hidden = !nothing;
  if (nothing) $('nothing').textContent = all.length ? 'No run yet. One shows here as soon as snug train makes it.' : 'No run is shown.';
}

function runCard(run, i, several) {
  const h = run.head;
  const card = make('div', { class: `run${run.id === current && several ? ' current' : ''}${hidden.has(run.id) ? ' off' : ''}`, data: { run: run.name, state: run.missing ? 'missing' : h ? h.state : '' } });
  const swatch = make('span', { class: 'swatch' });
  swatch.style.setProperty('background', color(i));
  const top = make('div', { class: 'top' });
  if (several) {
    top.append(make('input', { type: 'checkbox', checked: !hidden.has(run.id), 'aria-label': `show ${run.name}`, onchange: (e) => { e.target.checked ? hidden.delete(run.id) : hidden.add(run.id); schedule(); } }));
    top.append(swatch, make('button', { class: 'name', title: run.path, onclick: () => { hidden.delete(run.id); current = run.id; schedule(); } }, run.name));
  } else {
    top.append(make('strong', { class: 'name', title: run.path }, run.name));
  }
  card.append(top);
  if (run.missing) { card.append(make('p', { class: 'soft' }, run.missing)); return card; }
  if (!h) return card;
  top.append(make('span', { class: `state ${h.state.replace(/ /g, '-')}` }, h.doing ? `${h.state}, ${h.doing}` : h.state));
  if (h.updates > 0) {
    const bar = make('progress', { max: h.updates, value: h.update, 'aria-label': 'progress' });
    card.append(bar);
  }
  const words = [`update ${h.update.toLocaleString('en-US')}` + (h.updates ? ` of ${h.updates.toLocaleString('en-US')}` : '')];
  if (known(h.seconds_left)) words.push(`${duration(h.seconds_left)} left`);
  const l = h.latest;
  if (known(l.loss)) words.push(`loss ${figure(l.loss)}`);
  if (!several) {
    if (known(l.units_per_second)) words.push(`${figure(l.units_per_second, 3)} ${(run.info && run.info.unit) || 'units'}/s`);
    if (known(l.peak_share)) words.push(`${percent(l.peak_share)} of the peak`);
    if (known(l.learning_rate)) words.push(`learning rate ${figure(l.learning_rate, 3)}`);
    if (known(l.grad_norm)) words.push(`gradient norm ${figure(l.grad_norm, 3)}`);
  }
  card.append(make('p', { class: 'soft' }, words.join(' · ')));
  if (h.why) card.append(make('p', { class: 'why' }, h.why));
  return card;
}

// ---- curves

// lines are the curves of a section, by panel.
function linesOf(kind, time, list) {
  const panels = new Map();
  const zoom = time ? 'time' : 'updates';
  for (const run of list) {
    const whole = run[kind];
    const part = zoomed[zoom] && parts[zoom].get(run.id);
    const start = time ? startOf(run) : 0;
    for (const s of whole.values()) {
      const from = (part && part[kind].get(s.name)) || s;
      const shown = panels.get(s.panel) || [];
      panels.set(s.panel, shown);
      const nth = new Set(shown.map((l) => l.name)).size - (shown.some((l) => l.name === s.name) ? 1 : 0);
      const several = list.length > 1;
      const place = shown.find((l) => l.name === s.name);
      shown.push({
        run, name: s.name, unit: s.unit || '', y: from.y, x: time ? from.x.map((x) => x - start) : from.x, points: s.points, start,
        first: s.x.length ? s.x[0] - start : undefined, last: s.x.length ? s.x.at(-1) - start : undefined,
        color: color(several ? indexOf(run) : nth), dash: several ? (place ? place.dash : nth) : 0, sparse: from.x.length <= 60,
      });
    }
  }
  return panels;
}

// extent is the range of x of lines, zoomed or not.
function extent(lines) {
  let low = Infinity, high = -Infinity;
  for (const l of lines) if (l.first !== undefined) { low = Math.min(low, l.first); high = Math.max(high, l.last); }
  return low <= high ? [low, high] : [0, 1];
}

function startOf(run) {
  let first = Infinity;
  for (const s of run.machine.values()) if (s.x.length) first = Math.min(first, s.x[0]);
  return first === Infinity ? 0 : first;
}

// sectionOf is where a panel is: what a system measures besides loss and the monitored
// metric comes after all that runs have in common.
function sectionOf(panel, time, list) {
  if (time) return $('machine');
  const more = panel.startsWith('metric ') && !list.some((r) => r.info && panel === `metric ${r.info.monitored_metric}`);
  return more ? $('metrics') : $('learning');
}

function showPanels(kind, time, list) {
  const panels = linesOf(kind, time, list);
  const zoom = zoomed[time ? 'time' : 'updates'];
  for (const [name, plot] of plots) {
    if (plot.time === time && !panels.has(plot.panel)) { plot.close(); plots.delete(name); }
  }
  const last = new Map(); // by section
  for (const [panel, lines] of panels) {
    const name = `${kind} ${panel}`;
    const section = sectionOf(panel, time, list);
    let plot = plots.get(name);
    if (!plot) plots.set(name, plot = new Plot(panel, time, setZoom));
    if (plot.box.parentNode !== section) {
      last.has(section) ? last.get(section).box.after(plot.box) : section.prepend(plot.box);
    }
    last.set(section, plot);
    plot.draw(lines, { smooth, log, several: list.length > 1, theme: themeKey(), whole: extent(lines), ...(zoom ? { from: zoom[0], to: zoom[1] } : {}) });
  }
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const themeKey = () => `${theme()} ${dark.matches}`;

let asked = 0;

// setZoom shows a part of x, null: the whole, in all panels of a kind. The part is
// fetched, thinned for its width.
async function setZoom(time, part) {
  const kind = time ? 'time' : 'updates';
  parts[kind].clear();
  zoomed[kind] = part;
  schedule();
  if (!part) return;
  const mine = ++asked;
  await Promise.all(seen().map(async (run) => {
    const start = startOf(run);
    // One point more at each side, so that lines reach the edges.
    const q = time ? { begin: Math.max(0, start + part[0] - 2), end: start + part[1] + 2 } : { from: Math.max(0, Math.floor(part[0]) - 1), to: Math.ceil(part[1]) + 1 };
    try {
      const got = await range(run.id, width, q);
      if (mine === asked) parts[kind].set(run.id, got);
    } catch { /* what is there stays */ }
  }));
  document.documentElement.dataset.zoomed = part.join(' ');
  schedule();
}

// ---- words

function showWords(run, list) {
  showAlerts(list);
  $('about').replaceChildren(...(run ? aboutCards(run, list.length > 1) : []));
  showDifferences(list);
  showText(run);
  showReports(run);
  showLog(run);
}

function showAlerts(list) {
  const out = [];
  for (const run of list) {
    const name = list.length > 1 ? make('b', {}, `${run.name}: `) : null;
    for (const a of run.head.alerts || []) {
      out.push(make('div', { class: `alert ${a.level}`, role: a.level === 'error' ? 'alert' : undefined, data: { kind: a.kind } },
        make('p', {}, name && name.cloneNode(true), a.text), a.do ? make('p', { class: 'soft' }, a.do) : null));
    }
    for (const a of run.head.advice || []) {
      out.push(make('div', { class: 'alert advice', data: { kind: a.kind || 'advice' } }, make('p', {}, name && name.cloneNode(true), adviceText(a))));
    }
    for (const p of run.head.problems || []) out.push(make('div', { class: 'alert warning' }, make('p', {}, name && name.cloneNode(true), p)));
  }
  $('alerts').replaceChildren(...out);
}

const adviceText = (a) => [a.do, a.because].filter(Boolean).join(': ');

function card(title, ...children) { return make('article', { class: 'card' }, make('h3', {}, title), ...children); }

function facts(rows) {
  const list = make('dl');
  for (const [term, value] of rows) if (value) list.append(make('dt', {}, term), make('dd', {}, value));
  return list;
}

function aboutCards(run, several) {
  const h = run.head, i = run.info || {};
  const out = [];
  out.push(card(several ? run.name : 'Run', facts([
    ['system', [i.system, i.preset, i.phase].filter(Boolean).join(', ')],
    ['device', [i.device, i.threads ? `${i.threads} threads` : ''].filter(Boolean).join(', ')],
    ['precision', i.precision],
    ['parameters', i.parameters ? i.parameters.toLocaleString('en-US') : ''],
    ['batch', i.batch_size ? `${i.batch_size} × ${i.gradient_accumulation_steps}` : ''],
    ['host', i.host],
    ['last update', h.updated ? ago(h.updated, Date.now()) : ''],
    ['folder', run.path],
  ])));
  if (h.time.updates > 0) out.push(timeCard(h.time));
  if (h.memory.limit_bytes || h.memory.planned_bytes) out.push(memoryCard(h.memory));
  if (h.sample) out.push(machineCard(h.sample, i));
  if (run.evaluations.length) out.push(evaluationCard(run, i));
  if (i.settings && Object.keys(i.settings).length) out.push(settingsCard(i.settings));
  return out;
}

function timeCard(t) {
  const shares = [['computing', t.compute_share, 0], ['waiting for data', t.data_share, 1], ['saving', t.save_share, 3], ['evaluating', t.evaluation_share, 2]];
  const bar = make('div', { class: 'shares', role: 'img', 'aria-label': shares.map(([n, v]) => `${n} ${percent(v)}`).join(', ') });
  const list = make('ul', { class: 'keys' });
  for (const [name, share, c] of shares) {
    if (!(share > 0.0005)) continue;
    const part = make('span');
    part.style.setProperty('width', `${100 * share}%`);
    part.style.setProperty('background', color(c));
    bar.append(part);
    const mark = make('span', { class: 'swatch' });
    mark.style.setProperty('background', color(c));
    list.append(make('li', {}, mark, `${name} `, make('b', {}, percent(share))));
  }
  return card(`Where the time goes, last ${t.updates} updates`, bar, list);
}

function meter(name, used, limit, text) {
  const fill = make('span');
  fill.style.setProperty('width', `${Math.min(100, (100 * used) / limit)}%`);
  return make('div', { class: 'meter' }, make('span', { class: 'label' }, name), make('span', { class: 'track' }, fill), make('span', { class: 'value' }, text));
}

function memoryCard(m) {
  const limit = Math.max(m.limit_bytes || 0, m.planned_bytes || 0, m.peak_bytes || 0, 1);
  const rows = [];
  if (m.planned_bytes) rows.push(meter('planned', m.planned_bytes, limit, bytes(m.planned_bytes)));
  if (m.used_bytes) rows.push(meter('used', m.used_bytes, limit, bytes(m.used_bytes)));
  if (m.peak_bytes) rows.push(meter('peak', m.peak_bytes, limit, bytes(m.peak_bytes)));
  const of = m.limit_bytes ? ` of ${bytes(m.limit_bytes)}` : '';
  return card(`${m.card ? 'Memory of the card' : 'Memory of the process'}${of}`, ...rows);
}

function machineCard(s, i) {
  const rows = [];
  const g = s.gpu;
  if (g) {
    if (known(g.busy_percent)) rows.push(meter('GPU busy', g.busy_percent, 100, `${figure(g.busy_percent, 3)} %`));
    if (known(g.watts)) rows.push(meter('power', g.watts, g.watts_cap || g.watts, `${figure(g.watts, 3)}${g.watts_cap ? ` of ${figure(g.watts_cap, 3)}` : ''} W`));
    if (known(g.sm_mhz)) rows.push(meter('clock', g.sm_mhz, g.sm_mhz_max || g.sm_mhz, `${figure(g.sm_mhz)}${g.sm_mhz_max ? ` of ${figure(g.sm_mhz_max)}` : ''} MHz`));
    if (known(g.celsius)) rows.push(meter('temperature', g.celsius, 100, `${g.celsius} °C`));
  }
  const processors = i.processors || 1;
  rows.push(meter('process', s.process_cpu_percent, 100 * processors, `${figure(s.process_cpu_percent / 100, 3)} of ${processors} processors`));
  rows.push(meter('machine', s.machine_cpu_percent, 100, `${figure(s.machine_cpu_percent, 3)} %`));
  rows.push(meter('memory', s.memory_total_bytes - s.memory_available_bytes, s.memory_total_bytes || 1, `${bytes(s.memory_available_bytes)} free`));
  return card(`Machine, ${clock(s.time)}`, ...rows);
}

function evaluationCard(run, i) {
  const names = [...new Set(run.evaluations.flatMap((e) => Object.keys(e.metrics)))].sort();
  const main = i.monitored_metric;
  names.sort((a, b) => (b === main) - (a === main));
  const shown = names.slice(0, 6);
  const table = make('table', {}, make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'update'), ...shown.map((n) => make('th', { scope: 'col' }, n.replaceAll('_', ' '))))));
  const body = make('tbody');
  for (const e of run.evaluations.slice(-8).reverse()) {
    body.append(make('tr', { class: e.best ? 'best' : undefined }, make('td', {}, e.update.toLocaleString('en-US')), ...shown.map((n) => make('td', {}, figure(e.metrics[n])))));
  }
  table.append(body);
  const notes = (i.baselines || []).map((b) => `${b.name} ${figure(b.value)}`).join(', ');
  return card('Evaluations', make('div', { class: 'scroll' }, table), make('p', { class: 'soft' }, notes ? `Baselines: ${notes}` : 'Bold: the best so far'));
}

const opened = new Set(); // titles of details that the user opened

function settingsCard(settings) {
  const rows = Object.keys(settings).sort().map((k) => make('tr', {}, make('th', { scope: 'row' }, k), make('td', {}, settings[k])));
  const box = make('details', { open: opened.has('settings'), ontoggle: (e) => (e.target.open ? opened.add('settings') : opened.delete('settings')) },
    make('summary', {}, `${rows.length} keys`), make('div', { class: 'scroll tall' }, make('table', { class: 'settings' }, make('tbody', {}, ...rows))));
  return card('Settings', box);
}

function showDifferences(list) {
  const having = list.filter((r) => r.info && r.info.settings);
  const keys = [...new Set(having.flatMap((r) => Object.keys(r.info.settings)))].sort()
    .filter((k) => new Set(having.map((r) => r.info.settings[k])).size > 1);
  $('compare').hidden = having.length < 2;
  if (having.length < 2) return;
  const head = make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'key'), ...having.map((r) => {
    const mark = make('span', { class: 'swatch' });
    mark.style.setProperty('background', color(indexOf(r)));
    return make('th', { scope: 'col' }, mark, r.name);
  })));
  const body = make('tbody', {}, ...keys.map((k) => make('tr', { data: { key: k } }, make('th', { scope: 'row' }, k), ...having.map((r) => make('td', {}, r.info.settings[k] ?? '–')))));
  if (!keys.length) body.append(make('tr', {}, make('td', { colspan: having.length + 1 }, 'None: these runs have the same settings.')));
  $('differences').replaceChildren(head, body);
}

function showText(run) {
  $('text').hidden = !run || !run.text;
  if (run && run.text) $('text').querySelector('pre').textContent = run.text;
}

function showReports(run) {
  const pages = (run && run.head.reports) || [];
  $('reports').hidden = !pages.length;
  const at = (p) => `/report/${run.id}/${p.name.split('/').map(encodeURIComponent).join('/')}`;
  $('reports').querySelector('ul').replaceChildren(...pages.map((p) => make('li', {}, make('a', { href: at(p), target: '_blank', rel: 'noopener' }, p.picture ? make('img', { src: at(p), alt: p.name, loading: 'lazy' }) : p.name))));
}

function showLog(run) {
  const lines = (run && run.log) || [];
  $('log-lines').hidden = !lines.length;
  const box = $('log-lines').querySelector('ol');
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  box.replaceChildren(...lines.map((l) => make('li', { class: l.level }, make('time', {}, l.time ? clock(l.time) : ''), make('span', {}, l.text))));
  if (atEnd) box.scrollTop = box.scrollHeight;
}

// ---- controls

$('smooth').addEventListener('input', (e) => { smooth = Number(e.target.value); schedule(); });
$('log').addEventListener('change', (e) => { log = e.target.checked; schedule(); });
$('whole').addEventListener('click', () => { setZoom(false, null); setZoom(true, null); });

const names = { auto: 'Auto', light: 'Light', dark: 'Dark' };
$('theme').textContent = names[theme()];
$('theme').addEventListener('click', () => {
  const next = { auto: 'light', light: 'dark', dark: 'auto' }[theme()];
  if (next === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { next === 'auto' ? localStorage.removeItem('snug-theme') : localStorage.setItem('snug-theme', next); } catch { /* storage is off */ }
  $('theme').textContent = names[next];
  schedule();
});
dark.addEventListener('change', schedule);
setInterval(schedule, 15000); // what is said of times past

// Of many runs the newest are seen at first.
const most = 4;
let listed = false;

connect(width, (id) => {
  if (!id && !listed && runs.size) {
    listed = true;
    [...runs.keys()].slice(0, -most).forEach((old) => hidden.add(old));
  }
  const run = id && runs.get(id);
  if (run) thin(run, width).then(schedule);
  schedule();
}, (text) => {
  $('connection').textContent = text;
  $('connection').dataset.state = text;
});
