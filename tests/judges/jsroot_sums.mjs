// Sums top-level fields of RNTuples as JSROOT reads them; sums.py defines the sums.
//
//     node jsroot_sums.mjs MODULES JOBS.json      [{"file", "ntuple", "fields", "target"}, ...]

import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [modules, jobs] = process.argv.slice(2);
const module = name => import(pathToFileURL(`${modules}/jsroot/modules/${name}.mjs`).href);
const [{ openFile }, { TSelector }, { rntupleProcess }] =
   await Promise.all(['io', 'tree', 'rntuple'].map(module));

function put(found, path, value, square) {
   const sums = found[path] ??= [0, 0, 0];
   if (!Number.isFinite(value))
      return;
   sums[0] += 1;
   sums[1] += value;
   sums[2] += square ? value * value : Math.abs(value);
}

function add(found, path, value) {
   if (typeof value === 'string' || value?.length !== undefined) {
      put(found, `${path}#`, value.length, true);
      for (let at = 0; at < value.length; ++at)
         add(found, path, typeof value === 'string' ? value.charCodeAt(at) : value[at]);
   } else
      put(found, path, Number(value), false);
}

for (const { file, ntuple, fields, target } of JSON.parse(readFileSync(jobs, 'utf8'))) {
   const opened = await openFile(file), found = {}, selector = new TSelector;
   let entries = 0;
   fields.forEach(name => selector.addBranch(name));
   selector.Process = function() {
      ++entries;
      fields.forEach(name => add(found, name, this.tgtobj[name]));
   };
   await rntupleProcess(await opened.readObject(ntuple), selector);
   writeFileSync(target, JSON.stringify({ '': entries, ...found }));
}
