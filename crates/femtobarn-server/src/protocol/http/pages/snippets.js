// Programs for notebooks that read what the page shows.
import { FUNCTIONS } from "./expression.js";

// What binds less stands in parentheses.
const BINDING = { or: 1, and: 2, not: 3, comparison: 4, "+": 5, "-": 5, "*": 6, "/": 6, sign: 7, "**": 8, leaf: 9 };

// The lines that open a container as of the shown commit.
export function openingSnippet(chosen, overview) {
  const url = `root://${location.host}/${chosen.federation}`;
  const at = chosen.csn === "" ? "" : `.snapshot(csn=${overview.csn})`;
  return `import femtobarn as fb\n\nfed = fb.open(${JSON.stringify(url)})\nview = fed${at}[${JSON.stringify(chosen.container)}]`;
}

// The line that fills the histogram of trees (expression.js) with bins {bins, low, high}, one for each axis. Computed columns do not get
// the names of fields.
export function histogramSnippet({ x, y, where }, axes, fields) {
  const [aliases, bins] = [{}, []];
  const perItem = where?.lists.length ? pythonText(where) : "";
  for (const [at, tree] of [x, y].filter(Boolean).entries()) {
    const whole = pythonText(tree);
    const text = perItem && tree.lists.length ? `${tree.kind === "field" ? whole : `(${whole})`}[${perItem}]` : whole;
    const isPlain = tree.kind === "field" && /^[\w.]+$/.test(text) && !bins.some(([known]) => known === text);
    let name = isPlain ? text : "xy"[at];
    while (!isPlain && fields.includes(name)) name += "_";
    if (!isPlain) aliases[name] = text;
    bins.push([name, axes[at]]);
  }
  const entries = bins.map(([name, { bins: number, low, high }]) => `${quoted(name)}: (${number}, ${low}, ${high})`);
  const named = Object.entries(aliases).map(([name, text]) => `${quoted(name)}: ${quoted(text)}`);
  return `view.hist({${entries.join(", ")}}${named.length ? `,\n          aliases={${named.join(", ")}}` : ""}` +
    `${where && !perItem ? `,\n          where=${quoted(pythonText(where))}` : ""})`;
}

const quoted = (text) => JSON.stringify(text);

// A tree as an expression of Python, as `where` and `aliases` take it.
export function pythonText(tree) {
  const binding = bindingOf(tree);
  const part = (at, least) => bindingOf(tree.parts[at]) < least ? `(${pythonText(tree.parts[at])})` : pythonText(tree.parts[at]);
  switch (tree.kind) {
    case "number": return tree.text;
    case "field": return tree.name;
    case "call": return `${FUNCTIONS[tree.name].python ?? tree.name}(${tree.parts.map(pythonText).join(", ")})`;
    case "reduction": return `${tree.name}(${pythonText(tree.parts[0])})`;
    case "sign": return `${tree.sign}${part(0, binding)}`;
    case "not": return `not ${part(0, binding)}`;
    // A power begins at its right end, all others at their left one.
    case "arithmetic": if (tree.sign === "**") return `${part(0, binding + 1)} ** ${part(1, BINDING.sign)}`;
    // fall through
    default: return `${part(0, tree.kind === "comparison" ? binding + 1 : binding)} ${tree.sign} ${part(1, binding + 1)}`;
  }
}

const bindingOf = ({ kind, sign }) => BINDING[kind] ?? (kind === "arithmetic" || kind === "logic" ? BINDING[sign] : BINDING.leaf);
