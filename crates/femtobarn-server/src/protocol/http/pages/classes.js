// The view of the classes: a graph of the links from the fields of classes to classes, and a list.
import { $, count, element, fill, size } from "./elements.js";
import { drawGraph } from "./graph.js";

// The text of a type of a class definition ("Class definitions" in docs/format.md), such as list<link<Track>>.
export function typeText(type) {
  if (typeof type === "string") return type;
  const [[kind, of]] = Object.entries(type);
  switch (kind) {
    case "list": return isDictionary(of) ? `dict<${of.record.fields.map((it) => typeText(it.type)).join(", ")}>` : `list<${typeText(of)}>`;
    case "optional": return `optional<${typeText(of)}>`;
    case "array": return `${typeText(of.of)}[${of.size}]`;
    case "variant": return `variant<${of.map(typeText).join(", ")}>`;
    case "record": return of.class || "record";
    case "truncated": return `float of ${of.bits} bits`;
    case "quantised": return `float from ${of.min} to ${of.max} in ${of.bits} bits`;
    case "meaning": return of.name || of.is;
    default: return `${kind.replace("_", " ")}<${of}>`;
  }
}

const isDictionary = (of) => of.record?.class === "std::map::value_type";

// The fields of a definition with those of their records and of the items of their lists, such as tracks.pt.
export function allFields(fields, before = "") {
  return fields.flatMap((field) => {
    let type = field.type;
    while (type.list ?? type.optional ?? type.array) type = type.list ?? type.optional ?? type.array.of;
    const within = type.record && !isDictionary(type) ? allFields(type.record.fields, `${before}${field.name}.`) : [];
    return [{ ...field, name: before + field.name }, ...within];
  });
}

// All links in a type, with the path of the field; and the classes of its records.
function linksIn(type, path, found) {
  if (typeof type !== "object" || type === null) return found;
  if (Array.isArray(type)) type.forEach((it) => linksIn(it, path, found));
  else if (Array.isArray(type.fields)) {
    if (type.class) found.classes.add(type.class);
    type.fields.forEach((field) => linksIn(field.type, `${path}.${field.name}`, found));
  } else {
    for (const [kind, of] of Object.entries(type)) {
      if (kind.endsWith("link")) found.links.push({ field: path, target: of });
      else linksIn(of, path, found);
    }
  }
  return found;
}

// The classes that have containers, and the links between them. A link to an element of a collection is one to the class
// that has the collection.
export function linkGraph(classes) {
  const found = classes.map(({ name, definition }) => {
    const all = { links: [], classes: new Set() };
    (definition?.fields ?? []).forEach((field) => linksIn(field.type, field.name, all));
    return { name, ...all };
  });
  const holder = (target) => classes.some((it) => it.name === target) ? target
    : found.find((it) => it.classes.has(target))?.name;
  return found.flatMap(({ name, links }) => links.map(({ field, target }) =>
    ({ from: name, field, target, to: holder(target) ?? target })));
}

export function showClasses(chosen, overview) {
  const links = linkGraph(overview.classes);
  const href = (name) => `?${new URLSearchParams({ federation: chosen.federation, csn: chosen.csn, class: name })}`;
  fill("classes", overview.classes.map((it) => [element("a", { href: href(it.name) }, it.name), count(it.containers),
    count(it.objects), size(it.bytes),
    links.filter((link) => link.from === it.name).map((link) => `${link.field} → ${link.target}`).join(", ")]), "no classes yet");
  const names = [...new Set([...overview.classes.map((it) => it.name), ...links.map((link) => link.to)])];
  const box = (name) => {
    const of = overview.classes.find((it) => it.name === name);
    if (!of) return { name, facts: "not in this federation", isAbsent: true };
    const facts = `${count(of.objects)} objects in ${count(of.containers)}`;
    return { name, facts, href: href(name), title: `${name}: ${facts} containers, ${size(of.bytes)}` };
  };
  drawGraph($("graph"), names.map(box), links.map(({ from, to, field }) => ({ from, to, label: field })));
}
