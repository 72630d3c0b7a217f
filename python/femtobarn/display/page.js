// The panel beside the picture: events, the selected item with its fields and links, and the legend.
"use strict";

const $ = (id) => document.getElementById(id);
const scenes = JSON.parse($("scenes").textContent);
const BUTTONS_MAX = 60;
const MANY_ITEMS = 400;
const ENERGY_MAX = 50;
let event = null;
let stage = null;
let item = null;
let before = [];

const element = (name, text, attributes = {}) =>
  Object.assign(document.createElement(name), { textContent: text, ...attributes });
const same = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];

function fail(text) {
  $("error").textContent = text;
  $("error").hidden = false;
}

// The name of a collection, or its class if another object has a collection of that name.
function nameOf(group) {
  const isOnly = event.groups.every((other) => other === group || other.name !== group.name);
  return group.name && isOnly ? group.name : group.class;
}

function titleOf([group, index]) {
  if (!group.name) return `${group.class} ${group.oid}`;
  const kind = group.kinds?.[index]?.[0] ?? group.kind;
  const pt = group.geometry.pt?.[index];
  return `${kind} ${index}${pt ? `, ${pt.toPrecision(3)} GeV` : ""}`;
}

// The items that an item links to, or those that link to it, by the names of the links.
function linked([group, index], isTarget) {
  const number = event.groups.indexOf(group);
  const found = new Map();
  for (const { name, source, target, pairs } of event.links) {
    if ((isTarget ? target : source) !== number) continue;
    const other = event.groups[isTarget ? source : target];
    const key = isTarget ? `${nameOf(other)}, ${name}` : name;
    for (let at = 0; at < pairs.length; at += 2) {
      if (pairs[at + (isTarget ? 1 : 0)] !== index) continue;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push([other, pairs[at + (isTarget ? 0 : 1)]]);
    }
  }
  return found;
}

// What stays bright with an item: what it links to, what that links to, and what links to it.
function related(of) {
  const near = [...linked(of, false).values(), ...linked(of, true).values()].flat();
  const far = [...linked(of, false).values()].flat().flatMap((it) => [...linked(it, false).values()].flat());
  return [...near, ...far.filter(([group]) => isShown(group))];
}

const isShown = (group) => stage?.drawn[event.groups.indexOf(group)]?.isShown ?? group.shown;

function buttons(heading, items) {
  const shown = items.slice(0, BUTTONS_MAX).map((it) => {
    const button = element("button", titleOf(it));
    button.addEventListener("click", () => select(it));
    return button;
  });
  if (items.length > BUTTONS_MAX) shown.push(element("span", `and ${items.length - BUTTONS_MAX} more`));
  const row = element("div", "");
  row.append(...shown);
  return [element("h3", items.length > 1 ? `${heading} (${items.length})` : heading), row];
}

function select(chosen, isBack = false) {
  if (item && !isBack && !same(item, chosen)) before.push(item);
  item = chosen;
  if (!item) before = [];
  stage?.mark(item, item ? related(item) : []);
  showItem();
}

function showItem() {
  const [group, index] = item ?? [event.groups[0], 0];
  $("name").textContent = titleOf([group, index]);
  $("place").textContent = `${group.name ? `${group.name} of ` : ""}${group.container} ${group.oid}`;
  const relations = [];
  if (group.name) relations.push(...buttons("part of", [[event.groups[group.owner], 0]]));
  linked([group, index], false).forEach((items, name) => relations.push(...buttons(`links to: ${name}`, items)));
  linked([group, index], true).forEach((items, name) => relations.push(...buttons(`linked from: ${name}`, items)));
  $("relations").replaceChildren(...relations);
  const fields = Object.entries(group.table).filter(([, values]) => values[index] !== "");
  $("fields").replaceChildren(...fields.map(([name, values]) => {
    const row = element("tr", "");
    row.append(element("th", name), element("td", String(values[index] ?? "–")));
    return row;
  }));
  $("clear").hidden = !item;
  $("back").hidden = !before.length;
  document.documentElement.dataset.selected = item ? titleOf(item) : "";
}

// The next item of the collection, or the first item that is shown.
function step(by) {
  if (item && item[0].name) return select([item[0], (item[1] + by + item[0].count) % item[0].count]);
  const shown = event.groups.filter((group) => group.name && isShown(group));
  const group = shown.find(({ form }) => form === "cone") ?? shown[0];
  if (group) select([group, by > 0 ? 0 : group.count - 1]);
}

function showLegend() {
  const lines = event.groups.filter((group) => group.form && (group.name || group.shown)).map((group) => {
    const line = element("li", "");
    const label = element("label", "");
    const box = element("input", "", { type: "checkbox", checked: isShown(group) });
    const swatch = element("i", "");
    swatch.style.background = group.colour;
    const count = group.left_out ? `${group.count} of ${group.count + group.left_out}` : group.count;
    label.append(box, swatch, element("span", nameOf(group)), element("small", `${group.kind}, ${count}`));
    box.addEventListener("change", () => {
      if (stage) stage.drawn[event.groups.indexOf(group)].isShown = box.checked;
      applyThreshold();
    });
    const first = element("button", "›", { title: `select the first of ${nameOf(group)}` });
    first.addEventListener("click", () => select([group, 0]));
    line.append(label, first);
    return line;
  });
  $("legend").replaceChildren(...lines);
  const undrawn = Object.entries(event.undrawn).map(([name, count]) => `${name} (${count})`);
  $("undrawn").textContent = undrawn.length ? `Without positions or momenta: ${undrawn.join(", ")}.` : "";
}

const least = () => ENERGY_MAX * ($("threshold").value / 100) ** 2;

function applyThreshold() {
  $("least").textContent = least().toFixed(least() < 10 ? 1 : 0);
  stage?.filter(least());
}

// Which jet each track belongs to, and the highest tower: they give colours and lengths.
function prepare(found) {
  found.jets = new Map();
  for (const { source, target, pairs } of found.links) {
    const [from, to] = [found.groups[source], found.groups[target]];
    if (from.form !== "cone" || !from.shown) continue;
    if (!found.jets.has(to)) found.jets.set(to, new Map());
    for (let at = 0; at < pairs.length; at += 2) found.jets.get(to).set(pairs[at + 1], pairs[at]);
  }
  const towers = found.groups.filter((group) => group.form === "tower" && group.shown);
  found.highest = towers.flatMap((group) => group.geometry.pt).reduce((most, pt) => Math.max(most, pt ?? 0), 1);
}

function showEvent(index) {
  event = scenes[index];
  prepare(event);
  item = null;
  before = [];
  const busy = event.groups.filter((group) => ["track", "tower"].includes(group.form) && group.shown);
  $("threshold").value = busy.reduce((sum, group) => sum + group.count, 0) > MANY_ITEMS ? 11 : 0;
  $("title").textContent = document.title = event.title;
  $("step").textContent = `${index + 1} of ${scenes.length}`;
  $("previous").disabled = index === 0;
  $("next").disabled = index === scenes.length - 1;
  $("steps").hidden = scenes.length === 1;
  document.documentElement.dataset.event = index;
  stage?.show(event);
  showLegend();
  applyThreshold();
  showItem();
}

const go = (by) => {
  const index = scenes.indexOf(event) + by;
  if (scenes[index]) showEvent(index);
};

try {
  stage = new Stage($("picture"), $("labels"), (found) => select(found));
} catch (error) {
  fail(`This browser draws no 3D (WebGL), so there is no picture; tables and links work. ${error.message}`);
}
$("previous").addEventListener("click", () => go(-1));
$("next").addEventListener("click", () => go(1));
$("clear").addEventListener("click", () => select(null));
$("back").addEventListener("click", () => select(before.pop(), true));
$("threshold").addEventListener("input", applyThreshold);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  const chosen = item;
  showEvent(scenes.indexOf(event));
  if (chosen) select(chosen);
});
addEventListener("keydown", (pressed) => {
  if (pressed.target.type === "range" || pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
  const actions = { ArrowLeft: () => go(-1), ArrowRight: () => go(1), Escape: () => select(null),
    n: () => step(1), p: () => step(-1) };
  actions[pressed.key]?.();
});
showEvent(0);
