// Turns, moves and zooms a camera around a point: by mouse, fingers or keys.
"use strict";

const TURN = 0.006;
const STEP = 0.12;
const NEAREST = 0.02;
const FARTHEST = 12;

class Orbit {
  // `onTap` is called with the place of a press that did not move, and whether it was a finger.
  constructor(camera, element, { onMove, onTap }) {
    Object.assign(this, { camera, element, onMove, onTap });
    this.pointers = new Map();
    this.target = new THREE.Vector3();
    this.size = 1;
    this.reset();
    this.listen();
  }

  // From where all of a cylinder is seen.
  fit(size) {
    this.size = size;
    this.reset();
  }

  reset() {
    Object.assign(this, { azimuth: 0.95, height: 0.4, distance: this.size * 3.1 });
    this.target.set(0, 0, 0);
    this.place();
  }

  place() {
    const { azimuth, height, distance, camera, size } = this;
    const across = Math.cos(height) * distance;
    camera.position.set(Math.sin(azimuth) * across, Math.sin(height) * distance, Math.cos(azimuth) * across).add(this.target);
    camera.near = size * 0.005;
    camera.far = size * 40;
    camera.updateProjectionMatrix();
    camera.lookAt(this.target);
    camera.updateMatrixWorld();
    this.onMove?.();
  }

  turn(x, y) {
    this.azimuth -= x;
    this.height = Math.max(-1.55, Math.min(1.55, this.height + y));
    this.place();
  }

  zoom(factor) {
    this.distance = Math.max(this.size * NEAREST, Math.min(this.size * FARTHEST, this.distance * factor));
    this.place();
  }

  // Moves the point that the camera looks at, by pixels of the screen.
  move(x, y) {
    const scale = (2 * this.distance * Math.tan((this.camera.fov * Math.PI) / 360)) / this.element.clientHeight;
    const [right, up] = [0, 1].map((column) => new THREE.Vector3().setFromMatrixColumn(this.camera.matrix, column));
    this.target.addScaledVector(right, -x * scale).addScaledVector(up, y * scale);
    this.place();
  }

  listen() {
    const { element, pointers } = this;
    element.addEventListener("pointerdown", (event) => {
      // Events that a program made have no pointer to capture.
      try { element.setPointerCapture(event.pointerId); } catch { /* The element gets them all the same. */ }
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      this.start = pointers.size === 1 ? [event.clientX, event.clientY] : null;
    });
    element.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const [x, y] = [event.clientX - before[0], event.clientY - before[1]];
      if (this.start && Math.hypot(event.clientX - this.start[0], event.clientY - this.start[1]) > 4) this.start = null;
      const spread = this.spread();
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      if (pointers.size === 2) {
        if (spread) this.zoom(spread / this.spread());
        this.move(x / 2, y / 2);
      } else if (event.shiftKey || event.buttons === 2) this.move(x, y);
      else this.turn(x * TURN, y * TURN);
    });
    element.addEventListener("pointerup", (event) => {
      if (this.start && event.button === 0) this.onTap(event.offsetX, event.offsetY, event.pointerType === "touch");
      pointers.delete(event.pointerId);
      this.start = null;
    });
    element.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    element.addEventListener("contextmenu", (event) => event.preventDefault());
    element.addEventListener("dblclick", () => this.reset());
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 300));
    }, { passive: false });
    element.addEventListener("keydown", (event) => this.press(event));
  }

  spread() {
    const [a, b] = [...this.pointers.values()];
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  }

  press(event) {
    const turns = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const zooms = { "+": 0.85, "=": 0.85, "-": 1.18 };
    if (turns[event.key]) this.turn(...turns[event.key]);
    else if (zooms[event.key]) this.zoom(zooms[event.key]);
    else if (event.key === "0") this.reset();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
