// Numbers of a scene to places and bodies: helices, cones, towers, arrows. Lengths are in metres, z is along the beam.
"use strict";

const OUTSIDE = 1.35;
const HELIX_STEPS = 40;
const TURN_MAX = 2.4;
const TOWER_LENGTH = 0.55;

const direction = (phi, eta) => {
  const across = 1 / Math.cosh(eta);
  return new THREE.Vector3(Math.cos(phi) * across, Math.sin(phi) * across, Math.tanh(eta));
};

// Where a direction from the origin leaves a cylinder.
function reach({ radius, half_length: halfLength }, towards) {
  const across = Math.hypot(towards.x, towards.y);
  return Math.min(across > 0 ? radius / across : Infinity, Math.abs(towards.z) > 0 ? halfLength / Math.abs(towards.z) : Infinity);
}

// The points of a track: bent inside the cylinder, and straight from there on for `beyond` of its radius.
function helix(outline, { x, y, z, phi, cot, curvature }, beyond) {
  const points = [new THREE.Vector3(x, y, z)];
  const longest = Math.min(2.2 * outline.radius, Math.abs(curvature) > 0 ? TURN_MAX / Math.abs(curvature) : Infinity);
  const along = Math.abs(cot) > 0 ? (1.02 * outline.half_length) / Math.abs(cot) : Infinity;
  const step = Math.min(longest, along) / (Math.abs(curvature) * longest > 0.02 ? HELIX_STEPS : 6);
  let [angle, length] = [phi, 0];
  while (length < Math.min(longest, along)) {
    const middle = angle - (curvature * step) / 2;
    const last = points[points.length - 1];
    const next = new THREE.Vector3(last.x + Math.cos(middle) * step, last.y + Math.sin(middle) * step, last.z + cot * step);
    if (Math.hypot(next.x, next.y) > outline.radius || Math.abs(next.z) > outline.half_length) break;
    points.push(next);
    angle -= curvature * step;
    length += step;
  }
  const last = points[points.length - 1];
  const isOut = Math.hypot(last.x, last.y) > 0.8 * outline.radius || Math.abs(last.z) > 0.8 * outline.half_length;
  const size = Math.hypot(1, cot);
  const rest = isOut ? beyond * outline.radius : step * 0.3;
  points.push(new THREE.Vector3(last.x + (Math.cos(angle) * rest) / size, last.y + (Math.sin(angle) * rest) / size,
    last.z + (cot * rest) / size));
  return points;
}

const curveOf = (points) => (points.length > 2 ? new THREE.CatmullRomCurve3(points) : new THREE.LineCurve3(points[0], points[1]));

function tube(points, thickness) {
  return new THREE.TubeGeometry(curveOf(points), points.length - 1, thickness, 5);
}

// A soft jet ends inside, a hard one behind the calorimeters.
function coneLength(outline, { phi, eta, pt }) {
  return reach(outline, direction(phi, eta)) * (0.6 + (OUTSIDE - 0.6) * Math.min(1, pt / 80));
}

// A cone that is a circle in pseudorapidity and azimuth: its side, and the points around its rim.
function cone({ phi, eta }, radius, length) {
  const rim = Array.from({ length: 65 }, (_, index) => {
    const angle = (index / 64) * 2 * Math.PI;
    return direction(phi + radius * Math.sin(angle), eta + radius * Math.cos(angle)).multiplyScalar(length);
  });
  const side = rim.slice(1).flatMap((point, index) => [0, 0, 0, ...rim[index], ...point]);
  const body = new THREE.BufferGeometry();
  body.setAttribute("position", new THREE.Float32BufferAttribute(side, 3));
  return [body, rim];
}

// Places a box from the surface of the calorimeter, or from its own place, outwards; its length is its energy.
function tower(outline, { x, y, z, phi, eta }, length, width) {
  const towards = direction(phi, eta);
  const start = x === undefined ? towards.clone().multiplyScalar(1.03 * reach(outline, towards)) : new THREE.Vector3(x, y, z);
  const middle = start.addScaledVector(towards, length / 2);
  const turn = new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(0, 0, 1), towards);
  return new THREE.Matrix4().compose(middle, turn, new THREE.Vector3(width, width, length));
}

// An arrow across the beam, whose length grows with its momentum.
function arrow(outline, phi, pt) {
  const length = outline.radius * (0.45 + 0.85 * Math.min(1, pt / 150));
  const towards = new THREE.Vector3(Math.cos(phi), Math.sin(phi), 0);
  const end = towards.clone().multiplyScalar(length);
  const shaft = tube([new THREE.Vector3(), end], 0.012 * outline.radius);
  const head = new THREE.ConeGeometry(0.04 * outline.radius, 0.12 * outline.radius, 20);
  head.applyQuaternion(new THREE.Quaternion().setFromUnitVectors(new THREE.Vector3(0, 1, 0), towards));
  head.translate(...end);
  return [shaft, head, end];
}

// The tracker and the calorimeters as lines.
function outlineOf({ radius, half_length: halfLength }) {
  const points = [];
  const circle = (r, z) => {
    for (let step = 0; step < 64; step++) {
      for (const angle of [step, step + 1]) points.push(r * Math.cos((angle * Math.PI) / 32), r * Math.sin((angle * Math.PI) / 32), z);
    }
  };
  for (const scale of [1, OUTSIDE]) {
    for (const z of [-1, 1]) circle(radius * scale, z * halfLength * scale);
    for (let step = 0; step < 12; step++) {
      const [x, y] = [Math.cos((step * Math.PI) / 6), Math.sin((step * Math.PI) / 6)].map((it) => it * radius * scale);
      points.push(x, y, -halfLength * scale, x, y, halfLength * scale);
    }
  }
  circle(radius, 0);
  points.push(0, 0, -1.6 * halfLength, 0, 0, 1.6 * halfLength);
  return new THREE.BufferGeometry().setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
}
