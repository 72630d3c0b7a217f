// Expressions over the numbers of a container, such as "Muon.pt * cosh(Muon.eta)", and conditions, such as "nMuon > 2". A text
// becomes a tree whose parts know what they give: `lists` has the fields that are lists around each number, none if an object has one
// number; `isTruth` tells truth values. `from` and `to` are the place of a part in the text.

const TEXT_MAX = 500;
const TOKEN = new RegExp(["\\s*(?:", "(?<number>(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][+-]?\\d+)?)|",
  "(?<name>[\\p{L}_][\\p{L}\\p{N}_]*(?:\\.(?:[\\p{L}_][\\p{L}\\p{N}_]*|#))*)|",
  "(?<sign>\\*\\*|&&|\\|\\||[<>=!]=|[-+*/<>()&|!~,])|$)"].join(""), "uy");
const INSTEAD = { "=": "compare with ==", "^": "a power is **", "%": "remainders are not computed", "[": "items cannot be chosen by their number" };
const WORDS = { "&": "and", "&&": "and", "|": "or", "||": "or", "~": "not", "!": "not" };
const COMPARISONS = ["<", "<=", ">", ">=", "==", "!="];

const of = (apply, python) => ({ takes: apply.length > 1 ? 2 : 1, apply, python });
const least = of((a, b) => Math.min(a, b), "minimum");
const greatest = of((a, b) => Math.max(a, b), "maximum");
const angle = of(Math.atan2, "arctan2");
// Functions of one or two numbers, with their names in Python where these are others.
export const FUNCTIONS = { abs: of(Math.abs), sqrt: of(Math.sqrt), exp: of(Math.exp), log: of(Math.log), log10: of(Math.log10),
  sin: of(Math.sin), cos: of(Math.cos), tan: of(Math.tan), sinh: of(Math.sinh), cosh: of(Math.cosh), tanh: of(Math.tanh),
  atan2: angle, arctan2: angle, min: least, minimum: least, max: greatest, maximum: greatest };
// Functions that make one value of all items of an object.
const REDUCERS = ["all", "any", "count", "max", "mean", "min", "sum"];

export class ExpressionError extends Error {
  constructor(message, { from, to }) {
    super(message);
    Object.assign(this, { from, to });
  }
}

// The trees of what is counted: of one or two expressions, and of a condition, which may be empty.
export function parsedPlot({ x, y, where }, numbers) {
  const read = (name, text, wanted) => {
    try {
      return text ? wanted(parsed(text, numbers)) : null;
    } catch (error) {
      throw error instanceof ExpressionError ? Object.assign(error, { of: name, text }) : error;
    }
  };
  const trees = { x: read("x", x, asNumber), y: read("y", y, asNumber) };
  trees.where = read("where", where, (tree) => {
    const jagged = [trees.x, trees.y].find((it) => it?.lists.length);
    if (!asTruth(tree).lists.length) return tree;
    if (!jagged) throw new ExpressionError("the condition has several values an object; make one of them by any(...) or all(...)", tree);
    return { ...tree, lists: together(tree, jagged, tree) };
  });
  if (trees.y) read("y", y, () => together(trees.x, trees.y, trees.y));
  return trees;
}

export function parsed(text, numbers) {
  if (text.length > TEXT_MAX) throw new ExpressionError(`it has more than ${TEXT_MAX} characters`, { from: TEXT_MAX, to: text.length });
  // Names of files of others may be no names here.
  const whole = numbers.find((it) => it.path === text.trim());
  const known = new Map(numbers.map((it) => [it.path, it]));
  const tree = whole ? field(whole, known, { from: 0, to: text.length }) : new Parser(text, known).whole();
  if (!fieldsOf({ tree }).length) throw new ExpressionError("it names no field", tree);
  return tree;
}

// The paths of the fields in trees.
export function fieldsOf(trees) {
  const paths = (tree) => tree.kind === "field" ? [tree.path] : (tree.parts ?? []).flatMap(paths);
  return [...new Set(Object.values(trees).filter(Boolean).flatMap(paths))];
}

// The number of items of X is nX, unless that is another field.
export function nameOf(path, known) {
  const name = path.replace(/(^|\.)([^.]+)\.#$/, "$1n$2");
  return name !== path && known.has(name) ? `len(${path.slice(0, -2)})` : name;
}

function field({ path, lists, is_truth: isTruth }, known, { from, to }) {
  return { kind: "field", path, name: nameOf(path, known), lists, isTruth, from, to };
}

function tokens(text) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const begin = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) {
      const from = begin + text.slice(begin).search(/\S/);
      const sign = String.fromCodePoint(text.codePointAt(from));
      throw new ExpressionError(INSTEAD[sign] ?? `${sign} is not part of an expression`, { from, to: from + sign.length });
    }
    const [kind, word] = Object.entries(match.groups).find(([, it]) => it !== undefined) ?? [];
    const to = TOKEN.lastIndex;
    if (kind) found.push({ kind, word: kind === "sign" ? WORDS[word] ?? word : word, sign: word, from: to - word.length, to });
  }
  return [...found, { kind: "end", word: "", from: text.length, to: text.length }];
}

// By descent, the operators that bind least first: or, and, not, comparisons, sums, products, signs, powers.
class Parser {
  constructor(text, known) {
    this.text = text;
    this.known = known;
    this.tokens = tokens(text);
  }

  // The next token if it is one of these words.
  take(...words) {
    return words.includes(this.tokens[0].word) && this.tokens[0].kind !== "number" ? this.tokens.shift() : null;
  }

  whole() {
    const tree = this.either();
    if (this.tokens[0].kind !== "end") throw new ExpressionError("an operator is missing before it", this.tokens[0]);
    return tree;
  }

  either() {
    let left = this.both();
    while (this.take("or")) left = logic("or", left, this.both());
    return left;
  }

  both() {
    let left = this.negation();
    while (this.take("and")) left = logic("and", left, this.negation());
    return left;
  }

  negation() {
    if (this.tokens[0].sign !== "not") return this.comparison();
    return inverse(this.take("not"), this.negation());
  }

  comparison() {
    let [left, found] = [this.sum(), null];
    for (let sign = this.take(...COMPARISONS); sign; sign = this.take(...COMPARISONS)) {
      const right = this.sum();
      const next = compared(sign.word, left, right);
      found = found ? logic("and", found, next) : next;
      left = right;
    }
    return found ?? left;
  }

  sum() {
    let left = this.product();
    for (let sign = this.take("+", "-"); sign; sign = this.take("+", "-")) left = arithmetic(sign.word, left, this.product());
    return left;
  }

  product() {
    let left = this.signed();
    for (let sign = this.take("*", "/"); sign; sign = this.take("*", "/")) left = arithmetic(sign.word, left, this.signed());
    return left;
  }

  signed() {
    const sign = this.take("-", "+", "not");
    if (!sign) return this.power();
    const operand = this.signed();
    if (sign.word === "not") return inverse(sign, operand);
    return { ...asNumber(operand), kind: "sign", sign: sign.word, parts: [operand], from: sign.from };
  }

  power() {
    const base = this.operand();
    return this.take("**") ? arithmetic("**", base, this.signed()) : base;
  }

  operand() {
    const token = this.tokens.shift();
    const { kind, word, from, to } = token;
    if (kind === "number") return { kind, value: Number(word), text: word.replace(/^0+(?=\d)/, ""), lists: [], isTruth: false, from, to };
    if (word === "(") {
      const inner = this.either();
      return { ...inner, from, to: this.close(from) };
    }
    if (kind === "end") throw new ExpressionError("a number or a name is missing at its end", token);
    if (kind !== "name") throw new ExpressionError("a number or a name is missing before it", token);
    return this.take("(") ? this.call(token) : this.named(token);
  }

  close(from) {
    const end = this.take(")");
    if (!end) throw new ExpressionError("this parenthesis is not closed", { from, to: from + 1 });
    return end.to;
  }

  // A field, or for nX the number of items of X.
  named(token) {
    const counted = token.word.replace(/(^|\.)n([^.]+)$/, "$1$2.#");
    const found = this.known.get(token.word) ?? this.known.get(counted);
    if (!found) throw new ExpressionError(`there is no number ${token.word}`, token);
    return field(found, this.known, token);
  }

  call(token) {
    const opened = token.to + this.text.slice(token.to).indexOf("(");
    const parts = [this.either()];
    while (this.take(",")) parts.push(this.either());
    const place = { from: token.from, to: this.close(opened) };
    const { word } = token;
    if (REDUCERS.includes(word) && parts.length === 1) return reduced(word, parts[0], place);
    const known = Object.hasOwn(FUNCTIONS, word) ? FUNCTIONS[word] : null;
    if (!known && !REDUCERS.includes(word)) throw new ExpressionError(`there is no function ${word}`, token);
    if (known?.takes !== parts.length) throw new ExpressionError(`${word} does not take ${parts.length} numbers`, place);
    parts.forEach(asNumber);
    const lists = parts.reduce((found, it) => together({ lists: found }, it, place), []);
    return { kind: "call", name: word, parts, lists, isTruth: false, ...place };
  }
}

function asNumber(tree) {
  if (tree.isTruth) throw new ExpressionError("this is true or false, but must be a number", tree);
  return tree;
}

function asTruth(tree) {
  if (!tree.isTruth) throw new ExpressionError("this is a number; compare it, such as with > 0", tree);
  return tree;
}

// The lists around the numbers of two parts that go together: those of one object with its items, item with item. Whether lists of
// different fields have as many items is only known when they are read.
function together({ lists: left }, { lists: right }, place) {
  if (!left.length || !right.length) return left.length ? left : right;
  if (left.join() !== right.join() && Math.max(left.length, right.length) > 1) {
    throw new ExpressionError(`items of ${left.at(-1)} do not go together with items of ${right.at(-1)}`, place);
  }
  return left;
}

function pair(kind, sign, left, right, isTruth) {
  const place = { from: left.from, to: right.to };
  return { kind, sign, parts: [left, right], lists: together(left, right, place), isTruth, ...place };
}

const arithmetic = (sign, left, right) => pair("arithmetic", sign, asNumber(left), asNumber(right), false);

const logic = (sign, left, right) => pair("logic", sign, asTruth(left), asTruth(right), true);

const inverse = (sign, part) => ({ ...asTruth(part), kind: "not", parts: [part], from: sign.from });

// Fields of truth values may be compared, too: C++ writes isGood == 1.
function compared(sign, left, right) {
  return pair("comparison", sign, ...[left, right].map((it) => it.kind === "field" ? it : asNumber(it)), true);
}

function reduced(name, part, place) {
  if (!part.lists.length) throw new ExpressionError(`${name} needs several numbers, but an object has only one of these`, part);
  const isTruth = name === "any" || name === "all";
  if (isTruth) asTruth(part);
  else if (name !== "count") asNumber(part);
  return { kind: "reduction", name, parts: [part], lists: [], isTruth, ...place };
}
