// Turns off what a browser does and a native app does not: the browser's context menu, dragging
// links, and a button that keeps the focus after a click, so that Space would press it again.

const isText = (target: EventTarget | null) => target instanceof HTMLElement && target.closest("input, textarea, .path") !== null;

/** Texts keep the system's menu, which copies and pastes. */
const onContextMenu = (event: Event) => {
  if (!isText(event.target)) event.preventDefault();
};

/** A click of the keyboard has no detail; the focus stays where the keyboard is. */
const onClick = (event: MouseEvent) => {
  if (event.detail > 0 && event.target instanceof HTMLElement) event.target.closest<HTMLElement>("button, a")?.blur();
};

export const behaveNatively = () => {
  addEventListener("contextmenu", onContextMenu);
  addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("click", onClick);
};
