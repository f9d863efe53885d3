'use strict';
// The token is kept as long as this tab is, and is no part of the address that is shown or remembered.
const EVERY = 2000; // milliseconds between two looks
const KEY = 'token';
const byId = (id) => document.getElementById(id);
const handed = new URLSearchParams(location.hash.slice(1)).get(KEY);
if (handed) {
  sessionStorage.setItem(KEY, handed);
  history.replaceState(null, '', location.pathname + location.search);
}
const box = document.querySelector('input[name=q]');
box.value = new URLSearchParams(location.search).get('q') || '';
let paused = false;
let late = 0; // milliseconds by which this clock is ahead of the server's
let asked = 0;
const FEW = 25; // rows of a section, until somebody wants to see all
const whole = new Set();
let told;

function element(tag, text, attributes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  return made;
}

function ago(time) {
  if (!time) return '';
  const seconds = Math.max(0, Math.round((Date.now() - late - Date.parse(time)) / 1000));
  return span(seconds);
}

function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function choose(words) {
  box.value = box.value === words ? '' : words;
  filtered();
}

function bar(section) {
  const made = element('span', '', { class: 'bar', 'aria-hidden': 'true' });
  for (const { count, severity } of section.states) {
    const part = element('i', '', { class: severity });
    part.style.flexGrow = count;
    made.append(part);
  }
  return made;
}

function tile(name, section) {
  const made = element('a', '', { href: `#${name.toLowerCase()}` });
  made.append(element('span', name, { class: 'dim' }));
  const well = section.states.reduce((sum, it) => sum + (it.severity === 'well' ? it.count : 0), 0);
  made.append(element('b', name === 'Events' ? section.count : `${well} of ${section.count}`));
  made.append(bar(section));
  return made;
}

function table(heads, rows) {
  const made = element('table');
  const top = element('tr');
  for (const head of heads) top.append(element('th', head));
  const head = element('thead');
  head.append(top);
  const body = element('tbody');
  for (const { cells, kind } of rows) {
    const line = element('tr', undefined, { class: kind });
    cells.forEach((cell, at) => {
      const made = element('td', cell.text === undefined ? cell : cell.text);
      if (cell.kind) made.className = cell.kind;
      if (at) made.dataset.head = heads[at];
      line.append(made);
    });
    body.append(line);
  }
  made.append(head, body);
  return made;
}

function heading(title, section) {
  const made = element('h2', `${title} `);
  if (section) {
    const few = section.rows.length < section.found ? `first ${section.rows.length} of ` : '';
    const all = section.found === section.count ? '' : ` of ${section.count}`;
    made.append(element('span', `${few}${section.found}${all} `, { class: 'dim' }));
    const chips = element('span', undefined, { class: 'chips' });
    for (const { state, count, severity } of section.states) {
      const chip = element('button', `${count} ${state}`, { type: 'button', class: severity });
      chip.addEventListener('click', () => choose(state));
      chips.append(chip);
    }
    made.append(chips);
  }
  return made;
}

function absent(id) {
  if (told.denied.includes(id)) return `You may not list ${id} of all namespaces.`;
  return told.unread[id] ? `They cannot be read: ${told.unread[id]}` : 'They are being read …';
}

function show(id, title, kinds) {
  const place = byId(id);
  const section = told.sections[id];
  if (!section) return place.replaceChildren(heading(title), element('p', absent(id), { class: 'dim' }));
  const columns = section.rows.length ? Object.keys(section.rows[0].columns) : [];
  const heads = [...(kinds ? ['Kind'] : []), 'Name', 'State', ...columns, 'Age', 'Why'];
  const rows = section.rows.map((row) => ({
    kind: row.severity,
    cells: [
      ...(kinds ? [row.kind] : []),
      row.namespace ? `${row.namespace}/${row.name}` : row.name,
      { text: row.state, kind: `state ${row.severity}` },
      ...columns.map((column) => row.columns[column] || ''),
      ago(row.since),
      { text: row.why, kind: 'why' },
    ],
  }));
  const shown = whole.has(id) ? rows : rows.slice(0, FEW);
  const more = element('button', whole.has(id) ? 'Show fewer' : `Show ${rows.length - FEW} more`, { type: 'button' });
  more.addEventListener('click', () => {
    if (!whole.delete(id)) whole.add(id);
    render();
  });
  const none = section.count ? 'None of that description.' : 'None.';
  const content = rows.length ? [table(heads, shown)] : [element('p', none, { class: 'dim' })];
  place.replaceChildren(heading(title, section), ...content, ...(rows.length > FEW ? [more] : []));
}

function showControllers(controllers) {
  const words = box.value.trim().toLowerCase();
  const rows = [];
  let idle = 0;
  for (const it of controllers) {
    const [last] = it.acted;
    const more = last && last.count > last.writes.length ? ` and ${last.count - last.writes.length} more` : '';
    const cells = [
      it.name,
      { text: it.why || it.phase, kind: `state ${it.severity}` },
      last ? last.key : '',
      last ? last.writes.join(', ') + more : told.denied.includes('acts') ? '' : 'nothing yet',
      last ? last.causes.join('; ') : '',
      last ? `${span(last.seconds)} ago` : '',
    ];
    if (!last && !words && ['well', 'waiting'].includes(it.severity)) {
      idle += 1;
      continue;
    }
    const said = cells.map((cell) => cell.text || cell).join(' ').toLowerCase();
    if (said.includes(words)) rows.push({ kind: it.severity, order: last ? last.seconds : Infinity, cells });
  }
  rows.sort((one, other) => one.order - other.order);
  const title = heading('Controllers, and why each last acted');
  const others = told.denied.includes('acts')
    ? 'What they did is shown to callers who may list all resources.'
    : idle ? `${rows.length ? 'The other ' : ''}${idle} have changed nothing yet.` : '';
  const shown = rows.length ? [table(['Controller', 'State', 'Key', 'Did', 'Because', 'When'], rows)] : [];
  byId('controllers').replaceChildren(title, ...shown, element('p', others, { class: 'dim' }));
}

function render() {
  const { manager, sections } = told;
  byId('role').textContent = manager.leads ? '' : '· this manager stands by';
  byId('summary').textContent = manager.stopping || manager.standingBy || manager.summary;
  byId('summary').className = manager.summary === 'All is well.' && !manager.stopping ? 'good' : 'warn';
  byId('seen').textContent = `${manager.name}, up ${span(manager.uptime)}, seen at ${manager.time}`;
  const tiles = [['Nodes', sections.nodes], ['Workloads', sections.workloads], ['Pods', sections.pods], ['Events', sections.events]];
  byId('tiles').replaceChildren(...tiles.filter(([, section]) => section).map(([name, section]) => tile(name, section)));
  show('workloads', 'Workloads', true);
  show('pods', 'Pods');
  show('nodes', 'Nodes');
  show('events', 'Events', true);
  showControllers(told.controllers);
  byId('shown').hidden = byId('links').hidden = false;
  byId('sign-in').hidden = true;
}

function refuse(status, why) {
  byId('shown').hidden = byId('links').hidden = true;
  for (const id of ['role', 'summary', 'seen']) byId(id).textContent = '';
  byId('sign-in').hidden = false;
  byId('refusal').textContent = sessionStorage.getItem(KEY) ? `${status}: ${why}` : 'Nobody is signed in.';
}

async function look() {
  const mine = ++asked;
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  try {
    const query = box.value.trim() ? `?q=${encodeURIComponent(box.value.trim())}` : '';
    const answer = await fetch(`/ui/state${query}`, { headers, cache: 'no-store' });
    const found = await answer.json();
    if (mine !== asked) return; // a later look was asked for
    if (answer.ok) {
      told = found;
      late = Date.now() - Date.parse(told.manager.time);
      render();
    } else if (answer.status === 401 || answer.status === 403) refuse(answer.status, found.message);
    else throw new Error(`${answer.status}: ${found.message}`);
  } catch (error) {
    if (mine !== asked) return;
    byId('summary').textContent = `The manager does not answer (${error.message}); what is shown may be old.`;
    byId('summary').className = 'bad';
  }
}

function filtered() {
  const here = new URL(location);
  if (box.value) here.searchParams.set('q', box.value);
  else here.searchParams.delete('q');
  history.replaceState(null, '', here);
  look();
}

box.addEventListener('input', filtered);
byId('filter').addEventListener('submit', (event) => event.preventDefault());
byId('pause').addEventListener('click', (event) => {
  paused = !paused;
  event.target.setAttribute('aria-pressed', paused);
  event.target.textContent = paused ? 'Go on' : 'Pause';
});
byId('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId('token').value.trim());
  byId('token').value = '';
  look();
});
setInterval(() => {
  const reading = paused || document.hidden || !getSelection().isCollapsed || !byId('sign-in').hidden;
  if (!reading) look();
}, EVERY);
look();
