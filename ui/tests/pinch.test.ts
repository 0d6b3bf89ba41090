// A pinch in WebKit, which sends gesture events.
import { expect, test, vi } from "vitest";
import { onPinch } from "../src/training/pinch";

const node = Object.assign(new EventTarget(), { getBoundingClientRect: () => ({ left: 100 }) }) as unknown as HTMLElement;
const send = (type: string, scale: number) => {
  const event = Object.assign(new Event(type, { cancelable: true }), { scale, clientX: 340 });
  node.dispatchEvent(event);
  return event.defaultPrevented;
};

test("a pinch zooms by the change of the distance, where the fingers are", () => {
  const zoom = vi.fn();
  const end = onPinch(node, zoom);
  expect(send("gesturestart", 1)).toBe(true);
  expect(zoom).not.toHaveBeenCalled();
  for (const scale of [1.25, 2.5, 0]) expect(send("gesturechange", scale)).toBe(true);
  expect(zoom.mock.calls).toEqual([[0.8, 240], [0.5, 240]]);
  expect(send("gestureend", 2.5)).toBe(true);
  // The next pinch begins anew.
  send("gesturestart", 1);
  send("gesturechange", 0.5);
  expect(zoom).toHaveBeenLastCalledWith(2, 240);
  end();
  expect(send("gesturechange", 3)).toBe(false);
  expect(zoom).toHaveBeenCalledTimes(3);
});
