// Functions that the pages share: numbers for people, tables, elements, and requests to the server.

export { count } from "./numbers.js";

const TYPING_MS = 200;
// The timers of text fields that wait for a pause in typing.
const pauses = new Map();

export const $ = (id) => document.getElementById(id);

export function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit && Math.abs(bytes) < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

export const moment = (microseconds) => new Date(microseconds / 1000).toLocaleString();

// An element with attributes and children. Texts are set as texts: they come from clients.
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// Fills a table with rows of texts and elements. Cells are aligned like their heads. A table without rows shows a line
// for that case; without such a line, its section is hidden.
export function fill(id, rows, none) {
  const table = $(id);
  const heads = [...table.tHead.rows[0].cells];
  const body = element("tbody");
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((content, at) => {
      const cell = line.insertCell();
      if (content !== "") cell.append(element("span", {}, content));
      cell.className = heads[at].className;
      // Shown before the text where there is no room for columns.
      cell.dataset.head = heads[at].textContent;
    });
  }
  if (none === undefined) table.closest("section").hidden = !rows.length;
  else if (!rows.length) {
    const cell = body.insertRow().insertCell();
    cell.colSpan = heads.length;
    cell.className = "none";
    cell.textContent = none;
  }
  table.replaceChild(body, table.tBodies[0]);
}

// The name of an export, escaped for addresses; it may have slashes.
export const escaped = (name) => name.split("/").map(encodeURIComponent).join("/");

// Calls back with the text of a field after a pause in typing.
export function whenTyped(field, then) {
  field.addEventListener("input", () => {
    clearTimeout(pauses.get(field));
    pauses.set(field, setTimeout(() => { pauses.delete(field); then(field.value); }, TYPING_MS));
  });
}

// Shows a text in a field, unless the user is typing there.
export function setUnlessTyped(field, text) {
  if (!pauses.has(field)) field.value = text;
}

// The server's answer to a request, unless the signal aborts it; parameters without a value are left out.
export async function ask(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const answer = await fetch(address, { signal }).catch(() => { throw new Error("the server does not answer"); });
  const isData = answer.headers.get("content-type")?.startsWith("application/json");
  const told = isData ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

export function showError(text) {
  $("error").textContent = text;
  $("error").hidden = !text;
}
