// A graph of named boxes with labelled arrows: of classes and their links, of clients and their waits.
import { drawn } from "./elements.js";

const BOX = { height: 50, down: 82, edge: 12, most: 1100, letters: 40 };
// Widths of a letter, in pixels: a text that is not drawn yet cannot be measured.
const [BOLD, PLAIN] = [7.7, 6.8];

const shortened = (text) => text.length > BOX.letters ? `${text.slice(0, BOX.letters - 1)}…` : text;
const longest = (texts) => Math.max(0, ...texts.map((text) => shortened(text).length));

// Draws boxes {name, facts, title, href} and arrows {from, to, label} between their names. A box without `href` is no
// link; one that `isAbsent` is dashed.
export function drawGraph(svg, boxes, arrows) {
  const names = boxes.map((it) => it.name);
  const pairs = joined(arrows);
  const width = Math.max(150, longest(names) * BOLD, longest(boxes.map((it) => it.facts)) * PLAIN) + 20;
  const gap = Math.max(70, longest(pairs.map((pair) => pair.label)) * PLAIN) + 30;
  const places = placed(names, arrows, width, width + gap);
  const right = Math.max(0, ...[...places.values()].map((place) => place.x)) + width + 70;
  const bottom = Math.max(0, ...[...places.values()].map((place) => place.y)) + BOX.down;
  svg.setAttribute("viewBox", `0 0 ${right} ${bottom}`);
  svg.style.width = `${Math.min(right, BOX.most)}px`;
  const marker = { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
  const defs = drawn("defs", {}, drawn("marker", marker, drawn("path", { d: "M0 0L8 4L0 8z" })));
  svg.replaceChildren(defs, ...pairs.map((pair) => arrow(pair, places)),
    ...boxes.map((it) => box(it, places.get(it.name))));
}

// The place of each box: to the right of those with arrows to it, unless they form a circle.
function placed(names, arrows, width, across) {
  const column = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    for (const { from, to } of arrows) {
      const next = column.get(from) + 1;
      if (from !== to && next < names.length) column.set(to, Math.max(column.get(to), next));
    }
  }
  // Circles push each other on: columns without a box are closed up.
  const used = [...new Set(column.values())].sort((a, b) => a - b);
  const filled = used.map(() => 0);
  return new Map(names.map((name) => {
    const at = used.indexOf(column.get(name));
    filled[at] += 1;
    return [name, { x: at * across + 1, y: (filled[at] - 1) * BOX.down + 16, width }];
  }));
}

// Arrows between the same two boxes are drawn as one, with at most two of their labels.
function joined(arrows) {
  const pairs = new Map();
  for (const each of arrows) {
    const key = JSON.stringify([each.from, each.to]);
    pairs.set(key, [...(pairs.get(key) ?? []), each]);
  }
  return [...pairs.values()].map((together) => {
    const labels = together.map((it) => it.label);
    return { ...together[0], title: labels.join(", "), label: labels.slice(0, 2).join(", ") + (labels.length > 2 ? ", …" : "") };
  });
}

function arrow({ from, to, label, title }, places) {
  const [start, end] = [places.get(from), places.get(to)];
  const line = (d, at) => drawn("g", { class: "edge" }, drawn("title", {}, title),
    drawn("path", { d, "marker-end": "url(#arrow)" }), drawn("text", at, shortened(label)));
  if (from === to) {
    const [x, y] = [start.x + 20, start.y + BOX.height];
    return line(`M${x + 40} ${y}C${x + 40} ${y + 24} ${x} ${y + 24} ${x} ${y}`, { x: x + 46, y: y + 15 });
  }
  const isBack = end.x <= start.x;
  const [x, y] = [start.x + start.width, start.y + BOX.height / 2 - (isBack ? BOX.edge : 0)];
  const [toX, toY] = [isBack ? end.x + end.width : end.x, end.y + BOX.height / 2 + (isBack ? BOX.edge : 0)];
  const bend = isBack ? 60 : (toX - x) / 2;
  const curve = `M${x} ${y}C${x + bend} ${y} ${isBack ? toX + bend : toX - bend} ${toY} ${toX} ${toY}`;
  const place = { x: isBack ? x + 8 : (x + toX) / 2, y: (y + toY) / 2 - 6 };
  return line(curve, isBack ? place : { ...place, class: "middle" });
}

function box({ name, facts, title, href, isAbsent }, { x, y, width }) {
  const parts = [drawn("title", {}, title ?? name),
    drawn("rect", { x, y, width, height: BOX.height, rx: 8 }),
    drawn("text", { x: x + 10, y: y + 21, class: "name" }, shortened(name)), drawn("text", { x: x + 10, y: y + 39 }, facts)];
  if (href) return drawn("a", { href, class: "box" }, ...parts);
  return drawn("g", { class: isAbsent ? "box absent" : "box" }, ...parts);
}
