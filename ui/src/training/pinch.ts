// A pinch on the trackpad of a Mac. WebKit sends gesture events for it, and no wheel with Ctrl.

/** What WebKit tells of a pinch. */
export interface PinchEvent extends Event {
  /** How far apart the fingers are, relative to the begin of the pinch. */
  scale: number;
  clientX: number;
}

/** Calls `zoom` with the factor of the time range, which gets shorter as the fingers move apart,
 * and the position in pixels from the left of `node`. Returns a function that ends this. */
export const onPinch = (node: HTMLElement, zoom: (factor: number, x: number) => void) => {
  let before = 1;
  const listen = (event: Event) => {
    // Otherwise the whole page is enlarged.
    event.preventDefault();
    const { type, scale, clientX } = event as PinchEvent;
    if (type === "gesturestart") before = 1;
    if (type !== "gesturechange" || !(scale > 0)) return;
    const factor = before / scale;
    before = scale;
    zoom(factor, clientX - node.getBoundingClientRect().left);
  };
  const types = ["gesturestart", "gesturechange", "gestureend"];
  for (const type of types) node.addEventListener(type, listen, { passive: false });
  return () => types.forEach((type) => node.removeEventListener(type, listen));
};
