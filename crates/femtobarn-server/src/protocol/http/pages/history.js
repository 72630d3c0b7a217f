// The view of the history: the curve of growth, the commits, and the changes of each commit.
import { $, ask, count, drawn, element, escaped, fill, moment, setUnlessTyped, showError, size, whenTyped } from "./elements.js";

const PAGE = 50;
const CURVE = { width: 1000, height: 220, left: 8, right: 8, top: 26, bottom: 24 };

// The commits that are listed: {federation, search, tags, commits}.
let listed = null;

export function beginHistory(choose) {
  whenTyped($("commit-search"), (message) => choose({ message }, false));
  $("older").addEventListener("click", () => {
    $("older").disabled = true;
    extend(listed, listed.commits.at(-1).csn - 1).catch(showFailure);
  });
  $("commits").addEventListener("click", (event) => {
    const link = event.target.closest("a[data-csn]");
    if (!link) return;
    event.preventDefault();
    const commit = listed.commits.find((it) => it.csn === Number(link.dataset.csn));
    showChanges(listed.federation, commit, choose).catch(showFailure);
  });
}

function showFailure(error) {
  showError(`The history cannot be shown: ${error.message}`);
}

export async function showHistory(chosen, overview, signal) {
  setUnlessTyped($("commit-search"), chosen.message);
  listed = { federation: chosen.federation, search: chosen.message, tags: overview.tags, commits: [] };
  await extend(listed, overview.csn, signal);
  showGrowth(await ask(`api/growth${escaped(chosen.federation)}`, {}, signal), overview.csn);
}

async function extend(list, until, signal) {
  const page = await ask(`api/commits${escaped(list.federation)}`, { until, search: list.search, limit: PAGE }, signal);
  // Another list may be shown meanwhile.
  if (list !== listed) return;
  list.commits.push(...page);
  $("older").disabled = page.length < PAGE || page.at(-1).csn <= 1;
  const tagsAt = (csn) => list.tags.filter((tag) => tag.csn === csn).map((tag) => tag.name).join(", ");
  fill("commits", list.commits.map((c) => [element("a", { href: "#", "data-csn": c.csn }, count(c.csn)), moment(c.time_us),
    `${c.user}@${c.host}`, c.message, tagsAt(c.csn)]), "no commits match");
}

async function showChanges(federation, commit, choose) {
  const { csn } = commit;
  const changes = await ask(`api/commits${escaped(federation)}`, { of: csn });
  $("changes-name").textContent = `Commit ${count(csn)}`;
  const look = element("button", { type: "button" }, "show the federation as of this commit");
  look.addEventListener("click", () => { $("changes").close(); choose({ csn, view: "containers", offset: 0 }); });
  $("changes-facts").replaceChildren(`${moment(commit.time_us)}, ${commit.user}@${commit.host}${commit.message && `: ${commit.message}`} `, look);
  const signed = (text, number) => number > 0 ? `+${text(number)}` : number ? text(number) : "";
  fill("changed", changes.map((c) => [`${c.database}/${c.container}`, c.class, c.kind, signed(count, c.objects), signed(size, c.bytes)]),
    "no changes that are kept");
  if (!$("changes").open) $("changes").showModal();
}

// Bytes over time, a step at each commit, and a line at the shown commit.
function showGrowth(points, at) {
  const growth = $("growth");
  growth.closest("section").classList.toggle("is-empty", points.length < 2);
  if (points.length < 2) { growth.replaceChildren(); return; }
  const [first, last] = [points[0].time_us, points.at(-1).time_us];
  const most = Math.max(1, ...points.map((point) => point.bytes));
  const x = (time) => CURVE.left + (CURVE.width - CURVE.left - CURVE.right) * (time - first) / Math.max(1, last - first);
  const y = (bytes) => CURVE.height - CURVE.bottom - (CURVE.height - CURVE.top - CURVE.bottom) * bytes / most;
  const steps = points.map((point, n) => `${n ? `H${x(point.time_us)}V` : `M${x(first)} `}${y(point.bytes)}`).join("");
  const now = points.findLast((point) => point.csn <= at) ?? points[0];
  const mark = x(now.time_us);
  growth.replaceChildren(
    drawn("path", { class: "area", d: `${steps}V${y(0)}H${x(first)}z` }), drawn("path", { class: "read", d: steps }),
    drawn("line", { class: "mark", x1: mark, x2: mark, y1: CURVE.top, y2: y(0) }),
    drawn("text", { x: CURVE.left, y: CURVE.height - 6 }, moment(first)),
    drawn("text", { x: CURVE.width - CURVE.right, y: CURVE.height - 6, class: "end" }, moment(last)),
    drawn("text", { x: CURVE.left, y: 16 }, `${size(most)} at most`),
    drawn("text", { x: Math.min(Math.max(mark, 240), CURVE.width - 240), y: 16, class: "middle" },
      `commit ${count(now.csn)}: ${size(now.bytes)}, ${count(now.objects)} objects`));
}
