// One container: its class, its past, and how to read it.
import { $, ask, count, escaped, fill, size } from "./elements.js";
import { allFields, typeText } from "./classes.js";
import { beginInside, showInside } from "./inside.js";

export function beginDetails(choose) {
  // Also closed by the key Escape; and by a step back, after which the address has no container.
  $("details").addEventListener("close", () => {
    if (new URLSearchParams(location.search).has("container")) choose({ container: "" });
  });
  $("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText($("snippet").textContent);
    $("copy").textContent = "copied";
  });
  beginInside(choose);
  // Browsers give a clipboard to pages of https and of this machine only.
  $("copy").hidden = !navigator.clipboard;
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
  $("copy").textContent = "copy";
  $("snippet").textContent = snippet(chosen, overview);
  $("file").href = `${escaped(chosen.federation)}/@${overview.csn}/${encodeURIComponent(database)}.root`;
  fill("fields", allFields(told.definition?.fields ?? []).map((f) => [f.name, typeText(f.type), f.description ?? ""]), "it has no fields");
  fill("versions", told.versions.reverse().map((v) => [count(v.csn), count(v.objects), count(v.deleted), size(v.bytes)]), "it has no objects yet");
  if (!$("details").open) $("details").showModal();
  await showInside(chosen, $("file").href, container);
}

// A database's name may have slashes, a container's has none.
function split(name) {
  const at = name.lastIndexOf("/");
  return [name.slice(0, at), name.slice(at + 1)];
}

function snippet(chosen, overview) {
  const url = `root://${location.host}/${chosen.federation}`;
  const at = chosen.csn === "" ? "" : `.snapshot(csn=${overview.csn})`;
  return `import femtobarn as fb\n\nfed = fb.open(${JSON.stringify(url)})\n` +
    `view = fed${at}[${JSON.stringify(chosen.container)}]\nview.arrays()`;
}
