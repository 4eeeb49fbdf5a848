// Colors before the first drawing: what was chosen on this page, else the system's.
'use strict';
{
  let chosen = null;
  try { chosen = localStorage.getItem('snug-theme'); } catch { /* storage is off */ }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
