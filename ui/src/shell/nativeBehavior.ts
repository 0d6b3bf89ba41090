// Turns off what a browser does and a native app does not: the browser's context menu, dragging
// links, and a button that keeps the focus after a click, so that Space would press it again.

import type { MenuPosition } from "../host/host";

/** A menu opens below what has the focus, or in the middle of what is higher, in pixels. */
const MAX_HEIGHT = 200;

/** Whether text can be selected here. */
export const isText = (target: EventTarget | null) => target instanceof HTMLElement && target.closest("input, textarea, .path") !== null;

/** Texts keep the system's menu, which copies and pastes. */
const onContextMenu = (event: Event) => {
  if (!isText(event.target)) event.preventDefault();
};

/** Where the menu of an element opens if the keyboard asks for it. */
const besideElement = (element: Element): { clientX: number; clientY: number } => {
  const { left, top, width, height } = element.getBoundingClientRect();
  return height > MAX_HEIGHT ? { clientX: left + width / 2, clientY: top + height / 2 } : { clientX: left, clientY: top + height };
};

/** Where the menu of an event opens; `null` at the pointer. Only `onMenuKey` makes such events. */
export const menuPosition = ({ isTrusted, clientX, clientY }: MouseEvent): MenuPosition | null => (isTrusted ? null : { x: clientX, y: clientY });

/** Opens the menu of what has the focus, also on a Mac, which has no key for it. */
export const onMenuKey = (event: KeyboardEvent) => {
  if (event.key !== "ContextMenu" && !(event.shiftKey && event.key === "F10")) return;
  const focused = document.activeElement;
  if (!focused || isText(focused)) return;
  // Otherwise some systems send the same event again.
  event.preventDefault();
  if (!event.repeat) focused.dispatchEvent(new MouseEvent("contextmenu", { bubbles: true, cancelable: true, ...besideElement(focused) }));
};

/** A click of the keyboard has no detail; the focus stays where the keyboard is. */
const onClick = (event: MouseEvent) => {
  if (event.detail > 0 && event.target instanceof HTMLElement) event.target.closest<HTMLElement>("button, a")?.blur();
};

export const behaveNatively = () => {
  addEventListener("contextmenu", onContextMenu);
  addEventListener("keydown", onMenuKey);
  addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("click", onClick);
};
