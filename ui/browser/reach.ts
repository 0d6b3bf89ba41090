// What the Tab key reaches.
import type { Page } from "@playwright/test";

/** Marks the controls that can be used now, in the open dialog if there is one, and from then on those
 * that are focused and show it. A group of radio buttons counts as one. Returns how many there are. */
const watch = () => {
  const within = document.querySelector("dialog[open]") ?? document.body;
  const groups = new Set<string>();
  const controls = [...within.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((element) => {
    if (element.matches(":disabled, :disabled *") || !element.checkVisibility({ visibilityProperty: true })) return false;
    if (!(element instanceof HTMLInputElement) || element.type !== "radio") return true;
    return !groups.has(element.name) && Boolean(groups.add(element.name));
  });
  const outlined = (element: Element, part?: string) => {
    // A text field shows its focus by the caret.
    if (element.matches("input[type=text], input[type=search], textarea")) return true;
    const style = getComputedStyle(element, part);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  };
  for (const control of controls) control.dataset.control = "not reached";
  (document.activeElement as HTMLElement | null)?.blur();
  document.addEventListener("focusin", ({ target }) => {
    const element = target as HTMLElement;
    if (![undefined, "::before", "::after"].some((part) => outlined(element, part))) return;
    const name = element instanceof HTMLInputElement && element.type === "radio" ? element.name : undefined;
    const control = name ? document.querySelector<HTMLElement>(`input[name="${name}"][data-control]`) : element;
    if (control?.dataset.control) control.dataset.control = "reached";
  });
  return controls.length;
};

/** The controls that pressing Tab does not focus, or whose focus cannot be seen. */
export const unreachable = async (page: Page): Promise<string[]> => {
  const count = await page.evaluate(watch);
  for (let presses = 0; presses < count + 3; presses += 1) await page.keyboard.press("Tab");
  return page.locator("[data-control='not reached']").evaluateAll((elements) => elements.map((element) => element.outerHTML.slice(0, 160)));
};
