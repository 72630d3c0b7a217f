// The picture: bodies of the items of an event, which of them are shown, and which one is at a place of the screen.
"use strict";

const JET_COLOURS = ["#ffcf56", "#ff6f61", "#c792ea", "#5ce1e6", "#ff9f43", "#a3e635"];
const THICKNESS = { muon: 0.009, electron: 0.008, photon: 0.007, tau: 0.008, track: 0.0036 };
const OF_JETS = ["track", "particle", "candidate"];
const LABELS_MAX = 8;
const DIMMED = 0.16;
const MARK = "#ff5fa8";
const MATERIALS = { solid: THREE.MeshLambertMaterial, plain: THREE.MeshBasicMaterial, line: THREE.LineBasicMaterial };
const NEAR_PIXELS = 7;

const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

// Colours are made for a dark sky; on a bright one they are darker, and what is nearly white even more.
function colourOf(text) {
  const colour = new THREE.Color(text);
  return isDark() ? colour : colour.multiplyScalar(Math.min(colour.r, colour.g, colour.b) > 0.5 ? 0.15 : 0.55);
}

function roundDot() {
  const canvas = Object.assign(document.createElement("canvas"), { width: 32, height: 32 });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.arc(16, 16, 14, 0, 2 * Math.PI);
  pen.fill();
  return new THREE.CanvasTexture(canvas);
}

class Stage {
  constructor(canvas, labels, onPick) {
    Object.assign(this, { canvas, labels, onPick });
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, alpha: true });
    this.camera = new THREE.PerspectiveCamera(38, 1, 0.01, 100);
    this.world = new THREE.Scene();
    const sun = new THREE.DirectionalLight("#ffffff", 1.6);
    this.world.add(new THREE.HemisphereLight("#ffffff", "#8090b0", 2.2), sun);
    this.sun = sun;
    this.dot = roundDot();
    this.orbit = new Orbit(this.camera, canvas, {
      onMove: () => this.redraw(),
      onTap: (x, y, isFinger) => onPick(this.itemAt(x, y, isFinger ? 2.2 : 1)),
    });
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  resize() {
    const [width, height] = [this.canvas.clientWidth || 1, this.canvas.clientHeight || 1];
    this.renderer.setPixelRatio(Math.min(2, devicePixelRatio));
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.orbit.place();
  }

  // A narrow window sees the same cylinder from farther away.
  size() {
    const { radius, half_length: halfLength } = this.event?.outline ?? { radius: 1, half_length: 1 };
    return Math.hypot(radius, halfLength * 0.75) * OUTSIDE * Math.max(1, 0.95 / this.camera.aspect);
  }

  redraw() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.sun.position.copy(this.camera.position);
      this.renderer.render(this.world, this.camera);
      this.placeLabels();
      Object.assign(document.documentElement.dataset, this.counts());
    });
  }

  // What was drawn: for people who look for a fault, and for tests.
  counts() {
    const { triangles, lines, points } = this.renderer.info.render;
    return { triangles, lines, points };
  }

  show(event) {
    this.event = event;
    this.clear("all");
    this.clear("marked");
    this.all = new THREE.Group();
    const color = isDark() ? "#3d4d70" : "#b9c4d6";
    const line = new THREE.LineBasicMaterial({ color, transparent: true, opacity: 0.55 });
    this.all.add(new THREE.LineSegments(outlineOf(event.outline), line));
    this.materials = new Map();
    this.drawn = event.groups.map((group) => (group.form ? this.drawGroup(group) : null));
    this.world.add(this.all);
    this.orbit.fit(this.size());
  }

  clear(name) {
    const old = this[name];
    this[name] = null;
    if (!old) return;
    this.world.remove(old);
    old.traverse((body) => {
      body.geometry?.dispose();
      body.material?.dispose();
    });
  }

  // Whether all numbers of an item are known.
  has(group, index) {
    const columns = Object.values(group.geometry);
    return columns.length > 0 && columns.every((numbers) => numbers[index] !== null);
  }

  numbers(group, index) {
    return Object.fromEntries(Object.entries(group.geometry).map(([name, values]) => [name, values[index]]));
  }

  // The colour of an item: of its kind, of its place among the jets, or of the jet that it belongs to.
  colour(group, index) {
    if (group.form === "cone" && group.shown) return JET_COLOURS[index % JET_COLOURS.length];
    const jet = OF_JETS.includes(group.kind) ? this.event.jets.get(group)?.get(index) : undefined;
    return group.kinds?.[index]?.[1] ?? (jet === undefined ? group.colour : JET_COLOURS[jet % JET_COLOURS.length]);
  }

  material(kind, colour, opacity = 1) {
    const key = `${kind} ${colour} ${opacity}`;
    if (!this.materials.has(key)) {
      const made = new MATERIALS[kind]({ color: colourOf(colour), transparent: true, opacity, depthWrite: opacity === 1 });
      made.side = THREE.DoubleSide;
      if (kind === "solid") made.emissive = colourOf(colour).multiplyScalar(0.35);
      made.userData.opacity = opacity;
      this.materials.set(key, made);
    }
    return this.materials.get(key);
  }

  // The bodies of one item, the points by which it is found on the screen, and the place of its label.
  bodies(group, index, scale = 1, colour = this.colour(group, index)) {
    const { outline } = this.event;
    const numbers = this.numbers(group, index);
    const solid = this.material("solid", colour);
    const line = (points) => new THREE.Line(new THREE.BufferGeometry().setFromPoints(points), this.material("line", colour));
    if (group.form === "track") {
      const kind = group.kinds?.[index]?.[0] ?? group.kind;
      const path = helix(outline, numbers, kind === "muon" ? 0.9 : 0.06);
      const body = tube(path, (THICKNESS[kind] ?? THICKNESS.track) * outline.radius * scale);
      // From afar, a tube is thinner than a pixel, and a line is not.
      return { bodies: [new THREE.Mesh(body, solid), line(path)], path };
    }
    if (group.form === "cone") {
      const length = coneLength(outline, numbers);
      const [side, rim] = cone(numbers, group.radius, length);
      const plain = this.material("plain", colour, scale > 1 ? 0.2 : 0.12);
      const end = direction(numbers.phi, numbers.eta).multiplyScalar(1.05 * length);
      return { bodies: [new THREE.Mesh(side, plain), line(rim)], path: rim, end };
    }
    if (group.form === "arrow") {
      const [shaft, head, end] = arrow(outline, numbers.phi, numbers.pt);
      return { bodies: [shaft, head].map((body) => new THREE.Mesh(body, solid)), path: [new THREE.Vector3(), end], end };
    }
    if (group.form === "tower") {
      const body = new THREE.Mesh(new THREE.BoxGeometry(1, 1, 1), solid);
      body.applyMatrix4(this.towerAt(group, index, scale));
      return { bodies: [body] };
    }
    return { bodies: [this.points(group, [index], colour, scale)] };
  }

  towerAt(group, index, scale = 1) {
    const { outline } = this.event;
    const width = outline.radius * (group.kind.startsWith("had") || group.kind === "cluster" ? 0.034 : 0.02) * scale;
    const part = Math.min(1, group.geometry.pt[index] / this.event.highest);
    return tower(outline, this.numbers(group, index), outline.radius * (0.01 + TOWER_LENGTH * part), width);
  }

  points(group, indices, colour, scale = 1) {
    const { x, y, z } = group.geometry;
    const places = new THREE.Float32BufferAttribute(indices.flatMap((index) => [x[index], y[index], z[index]]), 3);
    const material = new THREE.PointsMaterial({ color: colourOf(colour), map: this.dot, alphaTest: 0.5, transparent: true });
    Object.assign(material, { size: (group.kind === "vertex" ? 7 : 2.6) * scale, sizeAttenuation: false });
    material.userData.opacity = 1;
    return new THREE.Points(new THREE.BufferGeometry().setAttribute("position", places), material);
  }

  drawGroup(group) {
    const body = new THREE.Group();
    const indices = [...Array(group.count).keys()].filter((index) => this.has(group, index));
    const drawn = { group, body, indices, items: new Map(), isShown: group.shown };
    if (group.form === "point" && indices.length) {
      body.add(this.points(group, indices, group.colour));
      this.materials.set(body.children[0].uuid, body.children[0].material);
    } else if (group.form === "tower" && indices.length) {
      const solid = this.material("solid", group.colour);
      drawn.towers = new THREE.InstancedMesh(new THREE.BoxGeometry(1, 1, 1), solid, indices.length);
      drawn.towers.frustumCulled = false;
      body.add(drawn.towers);
    } else {
      for (const index of indices) {
        const item = this.bodies(group, index);
        drawn.items.set(index, item);
        body.add(...item.bodies);
      }
    }
    this.all.add(body);
    return drawn;
  }

  // Shows the items of the groups that are shown, from a transverse momentum on.
  filter(least) {
    for (const drawn of this.drawn.filter(Boolean)) {
      const { pt } = drawn.group.geometry;
      drawn.body.visible = drawn.isShown;
      drawn.isOver = (index) => !pt || pt[index] >= least;
      drawn.items.forEach(({ bodies }, index) => bodies.forEach((body) => { body.visible = drawn.isOver(index); }));
      if (!drawn.towers) continue;
      const nothing = new THREE.Matrix4().makeScale(0, 0, 0);
      const place = (index) => (drawn.isOver(index) ? this.towerAt(drawn.group, index) : nothing);
      drawn.indices.forEach((index, at) => drawn.towers.setMatrixAt(at, place(index)));
      drawn.towers.instanceMatrix.needsUpdate = true;
      drawn.towers.boundingSphere = null;
    }
    this.redraw();
  }

  // Marks an item, keeps those that belong to it bright, and dims all others.
  mark(item, related) {
    this.clear("marked");
    this.materials.forEach((material) => { material.opacity = material.userData.opacity * (item ? DIMMED : 1); });
    if (item) {
      const dimmed = this.materials;
      this.materials = new Map();
      this.marked = new THREE.Group();
      related.forEach(([group, index]) => this.markOne(group, index, 1.6, this.colour(group, index)));
      this.markOne(...item, 2.2, MARK);
      this.materials = dimmed;
      this.world.add(this.marked);
    }
    this.redraw();
  }

  markOne(group, index, scale, colour) {
    if (group.form && this.has(group, index)) this.marked.add(...this.bodies(group, index, scale, colour).bodies);
  }

  onScreen(point) {
    const at = point.clone().project(this.camera);
    return [((at.x + 1) / 2) * this.canvas.clientWidth, ((1 - at.y) / 2) * this.canvas.clientHeight, at.z];
  }

  // The item at a place: the nearest point or line within a few pixels, or else a tower, or else a cone.
  itemAt(x, y, tolerance) {
    let [best, found] = [NEAR_PIXELS * tolerance, null];
    const take = (distance, item) => { if (distance < best) [best, found] = [distance, item]; };
    const shown = this.drawn.filter((drawn) => drawn?.isShown);
    for (const { group, items, isOver, indices } of shown) {
      items.forEach(({ path }, index) => { if (path && isOver(index)) take(this.distanceTo(path, x, y), [group, index]); });
      if (group.form !== "point") continue;
      const { geometry } = group;
      for (const index of indices) {
        const [px, py] = this.onScreen(new THREE.Vector3(geometry.x[index], geometry.y[index], geometry.z[index]));
        take(Math.hypot(px - x, py - y) + 1.5, [group, index]);
      }
    }
    return found ?? this.bodyAt(x, y, shown);
  }

  bodyAt(x, y, shown) {
    const ray = new THREE.Raycaster();
    const { clientWidth, clientHeight } = this.canvas;
    ray.setFromCamera(new THREE.Vector2((2 * x) / clientWidth - 1, 1 - (2 * y) / clientHeight), this.camera);
    const hits = (body, item) => ray.intersectObject(body).map((hit) => ({ distance: hit.distance, item: item(hit) }));
    const towers = shown.filter((drawn) => drawn.towers).flatMap((drawn) =>
      hits(drawn.towers, ({ instanceId }) => [drawn.group, drawn.indices[instanceId]]));
    const cones = () => shown.filter(({ group }) => group.form === "cone").flatMap(({ group, items, isOver }) =>
      [...items].filter(([index]) => isOver(index)).flatMap(([index, { bodies }]) => hits(bodies[0], () => [group, index])));
    const nearest = (found) => found.sort((a, b) => a.distance - b.distance)[0]?.item ?? null;
    return nearest(towers) ?? nearest(cones());
  }

  distanceTo(path, x, y) {
    let least = Infinity;
    let [ax, ay] = this.onScreen(path[0]);
    for (const point of path.slice(1)) {
      const [bx, by, depth] = this.onScreen(point);
      const [dx, dy] = [bx - ax, by - ay];
      const along = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
      if (depth < 1) least = Math.min(least, Math.hypot(ax + along * dx - x, ay + along * dy - y));
      [ax, ay] = [bx, by];
    }
    return least;
  }

  // Texts beside the hardest jets and the missing momentum.
  placeLabels() {
    const named = this.drawn?.filter((drawn) => drawn?.isShown && ["cone", "arrow"].includes(drawn.group.form)) ?? [];
    const ends = named.flatMap(({ group, items, isOver }) => [...items].filter(([index]) => isOver?.(index))
      .map(([index, { end }]) => ({ group, index, end, pt: group.geometry.pt[index] })));
    ends.sort((a, b) => b.pt - a.pt);
    this.labels.replaceChildren(...ends.slice(0, LABELS_MAX).map(({ group, index, end, pt }) => {
      const label = document.createElement("span");
      const [x, y] = this.onScreen(end);
      label.addEventListener("click", () => this.onPick([group, index]));
      label.textContent = `${group.form === "arrow" ? group.name || "missing" : group.kind} ${pt.toPrecision(3)} GeV`;
      const color = `#${colourOf(this.colour(group, index)).getHexString()}`;
      Object.assign(label.style, { left: `${x}px`, top: `${y}px`, color });
      return label;
    }));
  }
}
