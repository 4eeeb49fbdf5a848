// Figures as people read them.

export const known = (x) => typeof x === 'number' && Number.isFinite(x);

export function figure(x, digits = 4) {
  if (!known(x)) return '–';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return x.toExponential(Math.max(0, digits - 2)).replace('e+', 'e');
  if (size >= 1000) return Math.round(x).toLocaleString('en-US');
  return String(Number(x.toPrecision(digits)));
}

export function bytes(x) {
  if (!known(x)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (Math.abs(x) >= 1024 && i < units.length - 1) { x /= 1024; i++; }
  return `${x >= 100 || i === 0 ? Math.round(x) : x.toFixed(x >= 10 ? 1 : 2)} ${units[i]}`;
}

export const percent = (share) => (known(share) ? (share === 0 ? '0 %' : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`) : '–');

export function duration(s) {
  if (!known(s)) return '–';
  if (s === 0) return '0';
  if (Math.abs(s) < 1e-3) return `${figure(1e6 * s, 3)} µs`;
  if (s < 1) return `${figure(1000 * s, 3)} ms`;
  if (s < 60) return `${figure(s, 3)} s`;
  const two = (x) => String(Math.floor(x)).padStart(2, '0');
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)}:${two((s % 3600) / 60)} h`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// ago says how long ago a time was.
export function ago(when, now) {
  const s = (now - Date.parse(when)) / 1000;
  return known(s) ? (s < 2 ? 'now' : `${duration(s < 60 ? Math.round(s) : s)} ago`) : '';
}

// by gives the formatter of a unit.
export function by(unit) {
  if (unit === 'bytes') return bytes;
  if (unit === 's') return duration;
  if (unit.startsWith('percent')) return (x) => (known(x) ? `${figure(x, 3)} %` : '–');
  if (unit === 'share') return percent;
  if (unit === '') return (x) => figure(x);
  return (x) => (known(x) ? `${figure(x, 3)} ${unit}` : '–');
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

// make is an element with children, which are elements or text: never HTML.
export function make(tag, fields = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined || value === false) continue;
    if (key === 'class') e.className = value;
    else if (key === 'data') Object.assign(e.dataset, value);
    else if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null).map((c) => (c instanceof Node ? c : String(c))));
  return e;
}
