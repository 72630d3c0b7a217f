// The objects of a container, from one of them on. Their links lead to the objects of other containers.
import { $, ask, count, element, escaped, fill } from "./elements.js";
import { linksIn, written } from "./values.js";

const OBJECTS = 10;

// `showing` shows the result of a function of the container that is read.
export function beginObjects(choose, showing) {
  $("inside-more").addEventListener("click", () => showing(showMore));
  $("inside-entry").addEventListener("change", (event) => choose({ entry: event.target.value.trim() }, false));
  $("inside-objects").addEventListener("click", (event) => {
    const link = event.target.closest("a[data-container]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    choose({ container: link.dataset.container, inside: "true", entry: link.dataset.entry });
  });
}

export async function showObjects(reading, chosen) {
  $("inside-entry").value = chosen.entry;
  if (reading.first === chosen.entry) return;
  const { fields, entries } = reading.said;
  Object.assign(reading, { first: chosen.entry, rows: [], next: Math.max(0, Math.floor(Number(chosen.entry) || 0)), targets: {} });
  $("inside-entry").max = Math.max(0, entries - 1);
  $("inside-objects").tHead.rows[0].replaceChildren(element("th", { class: "n" }, "object"),
    ...fields.map((field) => element("th", { title: field.type }, field.name)));
  await showMore(reading);
}

async function showMore(reading) {
  const { said, source, rows } = reading;
  const { objects, next } = await reading.ask("objects", { first: reading.next, count: OBJECTS });
  // Others may be shown meanwhile.
  if (reading.rows !== rows) return;
  reading.next = next;
  const typeOf = (name) => source.fields.find((it) => it.name === name)?.type;
  await learnTargets(reading, objects.flatMap(({ value }) => said.fields.flatMap(({ name }) => linksIn(value[name], typeOf(name)))));
  const cell = (value, name) => element("span", {}, ...written(value, typeOf(name), (link) => linkTo(link, reading)));
  rows.push(...objects.map(({ entry, value }) => [count(entry), ...said.fields.map(({ name }) => cell(value[name], name))]));
  fill("inside-objects", rows, "there are no objects");
  $("inside-more").hidden = next >= said.entries;
}

const targetOf = ({ database, container }) => `${database}.${container}`;

// Asks the server for the names of the containers that links lead to.
async function learnTargets({ source, targets }, links) {
  const unknown = [...new Set(links.map(targetOf))].filter((target) => !(target in targets));
  if (!unknown.length) return;
  const { federation, csn, database, container } = source;
  const names = await ask(`api/links${escaped(federation)}`, { csn, database, container, to: unknown.join(",") });
  for (const target of unknown) targets[target] = names[target] ?? null;
}

function linkTo(link, { source, targets }) {
  const { entry, element: at } = link;
  const place = `${count(entry)}${at === undefined ? "" : `, element ${at}`}`;
  const name = targets[targetOf(link)];
  if (!name) return `object ${place} of an unknown container`;
  const chosen = { federation: source.federation, csn: source.chosenCsn, container: name, inside: "true", entry };
  return element("a", { href: `?${new URLSearchParams(chosen)}`, "data-container": name, "data-entry": entry }, `${name} ${place}`);
}
