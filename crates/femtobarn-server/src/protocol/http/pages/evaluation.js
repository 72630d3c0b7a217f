// Computes expressions (expression.js) over columns of some objects. A column is {values, offsets, missing}: doubles; for several
// numbers an object, where those of each begin, otherwise null; and which are missing, null if none is. A truth value is 1 or 0,
// or ½ if it is unknown: so "and" is the smaller of two, "or" the greater, and "not" what is left to 1.
import { ExpressionError, FUNCTIONS } from "./expression.js";

const UNKNOWN = 0.5;

// As in Python, but not in JavaScript, each power of 1 is 1, also that by NaN, and so are infinite powers of -1.
const power = (a, b) => a === 1 || a === -1 && Math.abs(b) === Infinity ? 1 : a ** b;
const ARITHMETIC = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "**": power };
const COMPARISONS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "==": (a, b) => a === b, "!=": (a, b) => a !== b };
const LOGIC = { and: (a, b) => Math.min(a, b), or: (a, b) => Math.max(a, b) };

// The numbers that a condition selects: {columns, objects}, where `objects` is how many satisfy it, null if its items do. `columnOf`
// gives the column of a field; `size` is the number of objects.
export function selected({ x, y, where }, columnOf, size) {
  const [columns, truth] = [[x, y].filter(Boolean).map((it) => evaluated(it, columnOf, size)), where && truths(where, columnOf, size)];
  const all = aligned(truth ? [...columns, truth] : columns, y ?? x);
  // Where a number is missing, or the condition is not met, there is a 0.
  const kept = new Uint8Array(all[0].values.length).fill(1);
  for (const { missing } of all) missing?.forEach((it, at) => { if (it) kept[at] = 0; });
  if (truth) all.at(-1).values.forEach((it, at) => { if (it !== 1) kept[at] = 0; });
  const objects = truth?.offsets ? null : truth ? truth.values.filter((it) => it === 1).length : size;
  const isAll = !kept.includes(0);
  return { columns: all.slice(0, columns.length).map(({ values }) => isAll ? values : values.filter((_, at) => kept[at])), objects };
}

export function evaluated(tree, columnOf, size) {
  const part = (at) => evaluated(tree.parts[at], columnOf, size);
  const truth = (at) => truths(tree.parts[at], columnOf, size);
  switch (tree.kind) {
    case "number": return { values: new Float64Array(size).fill(tree.value), offsets: null, missing: null };
    case "field": return columnOf(tree.path);
    case "sign": return tree.sign === "-" ? elementwise((a) => -a, [part(0)], tree) : part(0);
    case "arithmetic": return elementwise(ARITHMETIC[tree.sign], [part(0), part(1)], tree);
    case "call": return elementwise(FUNCTIONS[tree.name].apply, tree.parts.map((_, at) => part(at)), tree);
    case "comparison": return asTruths(elementwise(COMPARISONS[tree.sign], [part(0), part(1)], tree));
    case "logic": return elementwise(LOGIC[tree.sign], [truth(0), truth(1)], tree);
    case "not": return elementwise((a) => 1 - a, [truth(0)], tree);
    case "reduction": return tree.parts[0].isTruth ? reducedTruths(tree.name, truth(0)) : reducedNumbers(tree.name, part(0));
    default: throw new Error(`an expression has no ${tree.kind}`);
  }
}

const truths = (tree, columnOf, size) => asTruths(evaluated(tree, columnOf, size));

function asTruths({ values, offsets, missing }) {
  return { values: missing ? values.map((value, at) => missing[at] ? UNKNOWN : value) : values, offsets, missing: null };
}

function elementwise(apply, columns, tree) {
  const [first, second = first] = aligned(columns, tree);
  const values = new Float64Array(first.values.length);
  for (let at = 0; at < values.length; at += 1) values[at] = apply(first.values[at], second.values[at]);
  const missing = !second.missing ? first.missing : first.missing ? first.missing.map((it, at) => it | second.missing[at]) : second.missing;
  return { values, offsets: first.offsets, missing };
}

// Columns with as many values each: one of an object is repeated for its items, if another has items.
function aligned(columns, tree) {
  const jagged = columns.filter((it) => it.offsets);
  if (!jagged.length) return columns;
  const { offsets } = jagged[0];
  for (const other of jagged) {
    const at = other.offsets === offsets ? -1 : offsets.findIndex((it, n) => it !== other.offsets[n]);
    if (at >= 0) throw new ExpressionError("two lists have different numbers of items in an object", tree);
  }
  return columns.map((it) => it.offsets ? it
    : { values: repeated(it.values, offsets), offsets, missing: it.missing && repeated(it.missing, offsets) });
}

function repeated(values, offsets) {
  const made = new values.constructor(offsets.at(-1));
  for (let object = 0; object < values.length; object += 1) made.fill(values[object], offsets[object], offsets[object + 1]);
  return made;
}

function reducedTruths(name, { values, offsets }) {
  const made = new Float64Array(offsets.length - 1).fill(name === "all" ? 1 : 0);
  forItems(offsets, (object, at) => {
    if (name === "count") made[object] += values[at] === 1 ? 1 : 0;
    else made[object] = LOGIC[name === "all" ? "and" : "or"](made[object], values[at]);
  });
  return { values: made, offsets: null, missing: null };
}

// As in Python, NaN is no least and no greatest item; of no items there is neither, and no mean.
function reducedNumbers(name, { values, offsets, missing }) {
  const isEnd = name === "min" || name === "max";
  const sums = new Float64Array(offsets.length - 1);
  const counts = new Float64Array(offsets.length - 1);
  forItems(offsets, (object, at) => {
    if (missing?.[at] || isEnd && Number.isNaN(values[at])) return;
    counts[object] += 1;
    sums[object] = isEnd && counts[object] > 1 ? Math[name](sums[object], values[at]) : isEnd ? values[at] : sums[object] + values[at];
  });
  if (name === "count" || name === "sum") return { values: name === "sum" ? sums : counts, offsets: null, missing: null };
  if (name === "mean") counts.forEach((number, object) => { sums[object] /= number; });
  const none = Uint8Array.from(counts, (number) => number ? 0 : 1);
  return { values: sums, offsets: null, missing: none.includes(1) ? none : null };
}

function forItems(offsets, then) {
  for (let object = 0; object + 1 < offsets.length; object += 1) {
    for (let at = offsets[object]; at < offsets[object + 1]; at += 1) then(object, at);
  }
}
