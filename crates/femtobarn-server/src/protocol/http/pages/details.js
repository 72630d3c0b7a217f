// One container: its class, its history, and how to read it.
import { $, ask, count, escaped, fill, size } from "./elements.js";
import { allFields, typeText } from "./classes.js";
import { beginInside, showInside } from "./inside.js";
import { openingSnippet } from "./snippets.js";

export function beginDetails(choose) {
  // Also closed by the Escape key, and by a step back, after which the address has no container.
  $("details").addEventListener("close", () => {
    if (new URLSearchParams(location.search).has("container")) choose({ container: "" });
  });
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText($(button.dataset.copies).textContent);
      button.textContent = "copied";
    });
    // Browsers give a clipboard to pages of https and of this machine only.
    button.hidden = !navigator.clipboard;
  }
  beginInside(choose);
}

export async function showDetails(chosen, overview, signal) {
  if (!chosen.container) {
    if ($("details").open) $("details").close();
    return;
  }
  const [database, container] = split(chosen.container);
  const told = await ask(`api/container${escaped(chosen.federation)}`, { csn: overview.csn, database, container }, signal);
  const last = told.versions.at(-1);
  $("details-name").textContent = chosen.container;
  const sizes = last ? `${count(last.objects)} objects, ${size(last.bytes)}` : "empty";
  const links = told.links_to.length ? `. Its links may point to ${told.links_to.join(", ")}` : "";
  $("details-facts").textContent = `${told.class}, version ${told.class_version}; ${sizes}; created by commit ${count(told.created)}${links}.`;
  for (const button of document.querySelectorAll("button[data-copies]")) button.textContent = "copy";
  const opening = openingSnippet(chosen, overview);
  $("snippet").textContent = `${opening}\nview.arrays()`;
  $("file").href = `${escaped(chosen.federation)}/@${overview.csn}/${encodeURIComponent(database)}.root`;
  showElsewhere($("file").href, container);
  fill("fields", allFields(told.definition?.fields ?? []).map((f) => [f.name, typeText(f.type), f.description ?? ""]), "it has no fields");
  fill("versions", told.versions.reverse().map((v) => [count(v.csn), count(v.objects), count(v.deleted), size(v.bytes)]), "it has no objects yet");
  if (!$("details").open) $("details").showModal();
  const source = { file: $("file").href, federation: chosen.federation, csn: overview.csn, chosenCsn: chosen.csn, database, container, opening };
  await showInside(chosen, { ...source, fields: told.definition?.fields ?? [] });
}

// ROOT's own page reads the complete file by its address, which it takes as it is.
function showElsewhere(file, container) {
  $("file-url").textContent = file;
  $("jsroot").href = `https://root.cern/js/latest/?file=${file}&item=${encodeURIComponent(container)}`;
}

// A database's name may have slashes, a container's has none.
function split(name) {
  const at = name.lastIndexOf("/");
  return [name.slice(0, at), name.slice(at + 1)];
}
