// The view of the containers: search, filters, sorting, pages.
import { $, ask, count, element, escaped, fill, setUnlessTyped, size, whenTyped } from "./elements.js";

const PAGE = 50;
const heads = () => [...$("containers").tHead.rows[0].cells].filter((head) => head.dataset.sort);

export function beginContainers(choose) {
  whenTyped($("search"), (search) => choose({ search, offset: 0 }, false));
  for (const name of ["class", "state"]) $(name).addEventListener("change", () => choose({ [name]: $(name).value, offset: 0 }));
  for (const head of heads()) {
    const button = element("button", { type: "button" }, head.textContent.trim());
    // Numbers are sorted with the largest first.
    button.addEventListener("click", () => {
      const isSorted = head.hasAttribute("aria-sort");
      const wasDescending = head.getAttribute("aria-sort") === "descending";
      choose({ sort: head.dataset.sort, descending: isSorted ? (wasDescending ? "" : "true") : (head.className === "n" ? "true" : ""), offset: 0 });
    });
    head.replaceChildren(button);
  }
  $("previous").addEventListener("click", () => choose({ offset: Math.max(0, Number($("previous").dataset.offset)) }));
  $("next").addEventListener("click", () => choose({ offset: Number($("next").dataset.offset) }));
  $("containers").addEventListener("click", (event) => {
    const link = event.target.closest("a[data-container]");
    if (!link) return;
    event.preventDefault();
    choose({ container: link.dataset.container });
  });
}

export async function showContainers(chosen, overview, signal) {
  setUnlessTyped($("search"), chosen.search);
  // The chosen class may have no containers as of this commit.
  const classes = new Set(["", ...overview.classes.map((it) => it.name), chosen.class]);
  $("class").replaceChildren(...[...classes].map((name) => new Option(name || "every class", name)));
  $("class").value = chosen.class;
  $("state").value = chosen.state;
  const { federation, search, class: className, state, sort, descending, offset } = chosen;
  const told = await ask(`api/containers${escaped(federation)}`, { csn: overview.csn, search, class: className, state, sort,
    descending: descending || null, offset, limit: PAGE }, signal);
  for (const head of heads()) {
    if (head.dataset.sort === sort) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  fill("containers", told.rows.map((row) => [nameOf(row, chosen), row.container && `${row.class} ${row.class_version}`,
    row.container && count(row.objects), row.container && size(row.bytes), count(row.csn), row.state]), "no containers match");
  $("matches").textContent = `${count(told.matches)} ${told.matches === 1 ? "matches" : "match"}: ${count(told.objects)} objects, ${size(told.bytes)}`;
  const first = Number(offset);
  const end = first + told.rows.length;
  $("page").textContent = told.rows.length ? `${count(first + 1)} to ${count(end)} of ${count(told.matches)}` : "";
  $("previous").disabled = first === 0;
  $("previous").dataset.offset = first - PAGE;
  $("next").disabled = end >= told.matches;
  $("next").dataset.offset = end;
}

function nameOf(row, chosen) {
  const name = `${row.database}/${row.container}`;
  if (!row.container) return name;
  const href = `?${new URLSearchParams({ federation: chosen.federation, csn: chosen.csn, container: name })}`;
  return element("a", { href, "data-container": name }, name);
}
