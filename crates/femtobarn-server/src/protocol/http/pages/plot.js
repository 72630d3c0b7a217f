// Plots of a container: an expression, or two against each other, over the objects or items that a condition selects; and a program
// for a notebook that does the same.
import { $, count, element, size } from "./elements.js";
import { ExpressionError, nameOf, parsedPlot } from "./expression.js";
import { drawDensity, drawHistogram } from "./histogram.js";
import { real } from "./numbers.js";
import { histogramSnippet } from "./snippets.js";
import { timeText } from "./values.js";

// The choices for each axis, and the elements that show them.
const AXES = [["bins", "low", "high"], ["bins2", "low2", "high2"]];
const BINS_MAX = 1000;

export function beginPlot(choose) {
  const none = (names) => Object.fromEntries(names.map((name) => [name, ""]));
  // Other numbers have other ranges.
  $("inside-field").addEventListener("change", (event) => choose({ field: event.target.value.trim(), ...none(AXES[0]) }, false));
  $("inside-second").addEventListener("change", (event) => choose({ second: event.target.value.trim(), ...none(AXES.flat()) }, false));
  for (const name of ["where", ...AXES.flat()]) {
    $(`inside-${name}`).addEventListener("change", (event) => choose({ [name]: event.target.value.trim() }, false));
  }
}

// The numbers that fields of the form suggest.
export function offerNumbers(numbers) {
  $("inside-plot").hidden = !numbers.length;
  const known = new Map(numbers.map((it) => [it.path, it]));
  const names = numbers.map(({ path }) => nameOf(path, known));
  $("inside-numbers").replaceChildren(...names.map((name) => new Option("", name)));
  $("inside-field").placeholder = names[0] ?? "";
}

export async function showPlot(reading, chosen) {
  const { numbers, fields } = reading.said;
  showWrong(null);
  if (!numbers.length) return;
  const texts = { x: chosen.field || numbers[0].path, y: chosen.second, where: chosen.where };
  for (const name of ["field", "second", "where"]) $(`inside-${name}`).value = chosen[name];
  $("inside-second-axis").hidden = !texts.y;
  try {
    const trees = parsedPlot(texts, numbers);
    const told = await reading.ask("plot", { ...texts, axes: AXES.map((names) => givenAxis(chosen, names)) });
    // A newer one is on its way.
    if (!told) return;
    [trees.x, trees.y].filter(Boolean).forEach((tree, at) => {
      told.axes[at].text = tree.kind === "field" ? timeText(reading.source.fields, tree.path) : undefined;
    });
    if (texts.y) drawDensity($("histogram"), texts.x, texts.y, told);
    else drawHistogram($("histogram"), texts.x, told);
    told.axes.forEach((axis, at) => showAxis(chosen, AXES[at], axis));
    $("inside-facts").textContent = facts(told, texts, reading.said.entries);
    $("inside-snippet").textContent = `${reading.source.opening}\n${histogramSnippet(trees, told.axes, fields.map((it) => it.name))}`;
  } catch (error) {
    if (!(error instanceof ExpressionError) && !error.isExpression) throw error;
    showWrong(error);
  }
}

function givenAxis(chosen, names) {
  // The address may have something other than a number there.
  const given = names.map((name) => chosen[name] === "" ? NaN : Number(chosen[name]));
  const [bins, low, high] = given.map((number) => Number.isFinite(number) ? number : undefined);
  return { bins: bins === undefined ? undefined : Math.min(Math.max(1, Math.round(bins)), BINS_MAX), low, high };
}

function showAxis(chosen, names, { bins, low, high }) {
  [bins, low, high].forEach((value, at) => {
    $(`inside-${names[at]}`).value = chosen[names[at]];
    $(`inside-${names[at]}`).placeholder = short(value);
  });
}

// Shows an expression with the place that is wrong marked, and nothing of the one before.
function showWrong(error) {
  const fields = { x: "inside-field", y: "inside-second", where: "inside-where" };
  for (const [name, id] of Object.entries(fields)) $(id).setAttribute("aria-invalid", error?.of === name);
  $("inside-wrong").hidden = !error;
  $("inside-drawn").hidden = Boolean(error);
  if (!error) return;
  const { text = "", from = 0, to = 0 } = error;
  // At the end of the text there is nothing to mark but a blank.
  const marked = element("code", {}, text.slice(0, from), element("mark", {}, text.slice(from, to) || "\u00a0"), text.slice(to));
  $("inside-wrong").replaceChildren(...text ? [marked, ": "] : [], `${error.message}.`);
  $("inside-facts").textContent = "";
}

function facts(told, { y, where }, entries) {
  const chosen = where && told.chosen !== null ? `${count(told.chosen)} of ${count(told.objects)}` : count(told.objects);
  const part = told.read < entries ? `, the first of ${count(entries)}` : "";
  const names = y ? ["across: ", "up: "] : [""];
  const shapes = told.sums.map((sums, at) => sums.finite ? `${names[at]}${shape(sums, told.axes[at].text)}` : "").filter(Boolean);
  const outside = [[told.below, "below"], [told.above, "above"], [told.outside, "outside"], [told.invalid, "NaN"]].filter(([number]) => number);
  return `${count(told.numbers)} ${y ? "pairs" : "numbers"} of ${chosen} objects${part}${shapes.length ? `: ${shapes.join("; ")}` : ""}` +
    `${outside.map(([number, what]) => `, ${count(number)} ${what}`).join("")}. ` +
    `Fetched ${size(told.bytes)} in ${count(told.requests)} ${told.requests === 1 ? "request" : "requests"}.`;
}

// The deviation of times would be in their own unit.
function shape({ least, greatest, mean, deviation }, text) {
  if (text) return `${text(least)} to ${text(greatest)}, mean ${text(mean)}`;
  return `${real(least)} to ${real(greatest)}, mean ${short(mean)}, standard deviation ${short(deviation)}`;
}

const short = (number) => `${Number(number.toPrecision(5))}`;
