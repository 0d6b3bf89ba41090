// Reaches a state: performs its steps one after another, each as soon as its element is there, and
// marks the page when the state is shown.
import inter from "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2?url";
import type { State } from "./states";

/** The same font everywhere, so that pictures can be compared. Call this before the page is drawn:
 * charts draw text on a canvas. */
export const pinFont = async () => {
  document.fonts.add(await new FontFace("Inter", `url(${inter})`, { weight: "100 900" }).load());
  document.documentElement.style.setProperty("--font", '"Inter", "DejaVu Sans", sans-serif');
};

const found = async (selector: string): Promise<HTMLElement> => {
  for (;;) {
    const element = document.querySelector<HTMLElement>(selector);
    if (element && !element.matches(":disabled")) return element;
    await new Promise(requestAnimationFrame);
  }
};

const enter = (element: HTMLElement, value: string) => {
  if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement) element.value = value;
  for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true }));
};

const press = (element: HTMLElement, keys: string) => {
  const [key, command] = keys.split("+").reverse();
  element.focus();
  element.dispatchEvent(new KeyboardEvent("keydown", { key, metaKey: command === "Meta", bubbles: true, cancelable: true }));
};

/** "#a" clicks, "#a=text" enters a value, "#a@Enter" presses a key, and "#a?" waits. */
const perform = async (step: string) => {
  const [, selector, kind, rest] = /^(.+?)(?:(=(?![^[]*\])|@|\?$)(.*))?$/.exec(step)!;
  const element = await found(selector!);
  if (kind === "=") enter(element, rest!);
  else if (kind === "@") press(element, rest!);
  else if (kind !== "?") element.click();
};

export const reach = async (state: State) => {
  await found("body[data-ready]");
  for (const step of state.steps ?? []) await perform(step);
  await found(state.shows);
  await found("footer .t3"); // the memory of the machine
  document.body.dataset.state = state.id;
};
