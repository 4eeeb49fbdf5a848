// Panels of curves: one uPlot each, with a legend and a table of the same figures.
/* global uPlot */
import { by, clock, duration, figure, make } from './format.js';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const color = (i) => css(`--c${i % 8}`);
const dashes = [[], [6, 4], [2, 3], [9, 3, 2, 3]];

const titles = {
  loss: 'Loss', 'learning rate': 'Learning rate', 'gradient norm': 'Gradient norm', 'loss scale': 'Loss scale', speed: 'Speed',
  'share of the peak': 'Share of the peak', 'time of an update': 'Time of an update', utilization: 'Utilization', memory: 'Memory', power: 'Power',
  temperature: 'Temperature', clocks: 'Clocks', 'clocks held down': 'Clocks held down',
};
export const titleOf = (panel) => {
  const name = panel.replace(/^metric /, '').replaceAll('_', ' ');
  return titles[panel] || name.charAt(0).toUpperCase() + name.slice(1);
};

// smoothed is the exponential moving average, corrected for its start.
function smoothed(y, weight) {
  let mean = 0, norm = 0;
  return y.map((v) => {
    if (v === null || v === undefined) return v;
    mean = weight * mean + (1 - weight) * v;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}

const faint = (c) => `${c}55`;

// Plot is a panel. Its lines are {run, name, unit, x, y, points, color, dash}.
export class Plot {
  constructor(panel, time, zoom) {
    Object.assign(this, { panel, time, zoom, key: '', u: null, lines: [] });
    this.box = make('figure', { class: panel === 'loss' ? 'plot wide' : 'plot', data: { panel } });
    this.legend = make('div', { class: 'legend' });
    this.canvas = make('div', { class: 'canvas' });
    this.body = make('tbody');
    this.box.append(
      make('figcaption', {}, make('span', { class: 'title' }, titleOf(panel)), this.legend), this.canvas,
      make('details', { class: 'figures' }, make('summary', {}, 'Figures'), make('div', { class: 'scroll' }, make('table', { data: { panel } },
        make('thead', {}, make('tr', {}, ...['series', 'run', 'points', 'at', 'last', 'least', 'most'].map((t) => make('th', { scope: 'col' }, t)))), this.body))),
    );
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
  }

  unitOf(line) { return this.panel === 'share of the peak' || this.panel === 'clocks held down' ? 'share' : line.unit; }

  size() { return { width: Math.max(120, Math.floor(this.canvas.clientWidth)), height: this.panel === 'loss' ? 300 : 190 }; }

  resize() {
    const { width, height } = this.size();
    if (this.u && (this.u.width !== width || this.u.height !== height)) this.u.setSize({ width, height });
  }

  close() {
    this.observer.disconnect();
    if (this.u) this.u.destroy();
    this.box.remove();
  }

  // draw shows lines. options: smooth, log, several (runs), from and to (x that are seen).
  draw(lines, options) {
    this.lines = lines;
    const positive = lines.every((l) => l.y.every((v) => v === null || v > 0));
    const log = options.log && positive && !this.time;
    const key = JSON.stringify([lines.map((l) => [l.run.id, l.name, l.color, l.dash]), log, options.smooth > 0, options.several, options.theme]);
    const tables = lines.flatMap((l) => {
      if (!(options.smooth > 0) || this.time) return [[l.x, l.y]];
      return [[l.x, l.y], [l.x, smoothed(l.y, options.smooth)]];
    });
    const data = tables.length ? uPlot.join(tables) : [[]];
    this.whole = options.whole;
    if (!this.held) this.range = options.from === undefined ? null : [options.from, options.to];
    if (key !== this.key) {
      this.key = key;
      if (this.u) this.u.destroy();
      this.u = new uPlot(this.options(lines, log, options), data, this.canvas);
      this.makeLegend(options);
    } else {
      this.u.setData(data);
    }
    this.values(null);
    this.mirror();
  }

  options(lines, log, options) {
    const unit = this.unitOf(lines[0]);
    const axis = { stroke: css('--soft'), grid: { stroke: css('--grid'), width: 1 }, ticks: { stroke: css('--grid'), width: 1, size: 4 }, font: '11px system-ui, sans-serif' };
    const series = [{}];
    for (const l of lines) {
      const line = { stroke: l.color, width: 1.5, dash: dashes[l.dash % dashes.length], points: { show: l.sparse, size: 5, stroke: l.color, fill: l.color }, scale: 'y' };
      if (options.smooth > 0 && !this.time) series.push({ ...line, stroke: faint(l.color), width: 1 });
      series.push(line);
    }
    return {
      ...this.size(),
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false }, sync: { key: this.time ? 'time' : 'updates' }, points: { size: 6 },
        bind: { dblclick: () => () => { this.zoom(this.time, null); return null; } },
      },
      scales: {
        x: { time: false, range: (u, low, high) => this.range || (low === high ? [low - 1, high + 1] : [low, high]) },
        y: log ? { distr: 3 } : {},
      },
      axes: [
        { ...axis, space: 60, size: 28, values: (u, at) => at.map((x) => (this.time ? duration(x) : short(x))) },
        { ...axis, size: 62, values: (u, at) => at.map((y) => (y === null ? '' : ['bytes', 's', 'share'].includes(unit) ? by(unit)(y) : tick(y))), ...(unit === 'bytes' ? { incrs: binary } : {}) },
      ],
      series,
      hooks: {
        setSelect: [(u) => {
          if (u.select.width < 8) return;
          const part = [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          this.zoom(this.time, part);
        }],
        setCursor: [(u) => this.values(u.cursor.idx)],
        draw: [() => drawn()],
        ready: [(u) => this.touch(u)],
      },
    };
  }

  // touch lets two fingers zoom and, in a zoom, one finger move it; a double tap shows the
  // whole. What lies under a finger stays there. Up and down the page scrolls.
  touch(u) {
    const pixels = (e) => [...e.touches].slice(0, 2).map((f) => f.clientX - u.over.getBoundingClientRect().left);
    const hold = (e) => {
      const at = e.touches.length === 2 || (e.touches.length === 1 && this.range) ? pixels(e) : null;
      this.held = at && at.map((x) => u.posToVal(x, 'x'));
    };
    let moved = false, tap = null;
    u.over.addEventListener('touchstart', (e) => {
      if (e.touches.length > 1) tap = null;
      hold(e);
    }, { passive: true });
    u.over.addEventListener('touchmove', (e) => {
      if (!this.held || e.touches.length !== this.held.length || !e.cancelable) return;
      const at = pixels(e), [low, high] = [u.scales.x.min, u.scales.x.max];
      const scale = at.length === 2 ? (this.held[1] - this.held[0]) / (at[1] - at[0]) : (high - low) / u.over.clientWidth;
      if (!(scale > 0) || !Number.isFinite(scale)) return; // fingers that cross
      e.preventDefault();
      const from = this.held[0] - scale * at[0];
      this.range = this.within(from, from + scale * u.over.clientWidth);
      moved = true;
      u.setData(u.data);
    }, { passive: false });
    const end = (e) => {
      if (e.touches.length) { hold(e); return; }
      this.held = null;
      const finger = e.changedTouches[0], before = tap;
      tap = moved ? null : { at: e.timeStamp, x: finger.clientX, y: finger.clientY };
      if (moved) {
        moved = false;
        this.zoom(this.time, this.range);
      } else if (before && tap.at - before.at < 350 && Math.hypot(tap.x - before.x, tap.y - before.y) < 30) {
        tap = null;
        this.zoom(this.time, null);
      }
    };
    u.over.addEventListener('touchend', end, { passive: true });
    u.over.addEventListener('touchcancel', end, { passive: true });
  }

  // within is a range of x moved into what there is; null: it is all of it.
  within(from, to) {
    const [first, last] = this.whole;
    const wide = Math.max(to - from, (last - first) / 1e6, this.time ? 1 : 2);
    if (wide >= last - first) return null;
    const start = Math.min(Math.max(from, first), last - wide);
    return [start, start + wide];
  }

  makeLegend(options) {
    this.marks = this.lines.map((l) => {
      const value = make('b');
      const mark = make('i');
      mark.style.setProperty('border-top', `2px ${l.dash % 4 === 0 ? 'solid' : l.dash % 4 === 2 ? 'dotted' : 'dashed'} ${l.color}`);
      const name = options.several ? (this.names() > 1 ? `${l.run.name} ${l.name}` : l.run.name) : l.name;
      return { value, item: make('span', { title: `${l.run.name}: ${l.name}` }, mark, make('span', { class: 'name' }, name.replaceAll('_', ' ')), value) };
    });
    this.legend.replaceChildren(...this.marks.map((m) => m.item));
  }

  names() { return new Set(this.lines.map((l) => l.name)).size; }

  // values shows those at the cursor, or the last ones.
  values(index) {
    if (!this.marks) return;
    this.lines.forEach((l, i) => {
      let at = l.y.length - 1;
      if (index !== null && index !== undefined) {
        const x = this.u.data[0][index];
        while (at > 0 && l.x[at] > x) at--;
      } else {
        while (at > 0 && l.y[at] === null) at--;
      }
      this.marks[i].value.textContent = by(this.unitOf(l))(l.y[at]);
    });
  }

  // mirror is the table: what a screen reader reads, and a test.
  mirror() {
    const rows = this.lines.map((l) => {
      let low = Infinity, high = -Infinity, last = null, at = '';
      l.y.forEach((v, i) => {
        if (v === null) return;
        low = Math.min(low, v); high = Math.max(high, v); last = v; at = l.x[i];
      });
      const format = by(this.unitOf(l));
      const fields = [l.name, l.run.name, String(l.points), this.time ? clock(at + l.start) : at, format(last), format(low), format(high)];
      return make('tr', { data: { series: l.name, run: l.run.name, points: l.points, drawn: l.x.length, at, last: String(last), first: l.x[0] } }, ...fields.map((f) => make('td', {}, f)));
    });
    this.body.replaceChildren(...rows);
  }
}

const binary = Array.from({ length: 50 }, (_, i) => 2 ** i);
const short = (x) => (Math.abs(x) >= 1e6 ? `${figure(x / 1e6, 3)} M` : Math.abs(x) >= 1e4 ? `${figure(x / 1e3, 3)} k` : String(Math.round(x * 100) / 100));
const tick = (y) => (Math.abs(y) >= 1e4 && Math.abs(y) < 1e9 ? short(y) : figure(y, 3));

// drawn notes when the first curve was there, in milliseconds after the request.
function drawn() {
  const d = document.documentElement.dataset;
  if (!d.drawn) requestAnimationFrame(() => { d.drawn ||= Math.round(performance.now()); });
}
