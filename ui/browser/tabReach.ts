// What the Tab key reaches.
import type { Page } from "@playwright/test";

/** Marks the controls of a part that can be used now, and from then on those that are focused and
 * show it. A group of radio buttons counts as one. The next Tab key focuses the first. Returns how
 * many there are. */
const watch = (part: string) => {
  const within = document.querySelector<HTMLElement>(part === "html" ? "body" : part)!;
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
  if (!within.hasAttribute("tabindex")) within.tabIndex = -1;
  within.focus();
  document.addEventListener("focusin", ({ target }) => {
    const element = target as HTMLElement;
    if (![undefined, "::before", "::after"].some((part) => outlined(element, part))) return;
    const name = element instanceof HTMLInputElement && element.type === "radio" ? element.name : undefined;
    const control = name ? document.querySelector<HTMLElement>(`input[name="${name}"][data-control]`) : element;
    if (control?.dataset.control) control.dataset.control = "reached";
  });
  return controls.length;
};

/** The controls of a part that the Tab key, held down, does not focus, or whose focus cannot be
 * seen. */
export const unreachable = async (page: Page, part: string): Promise<string[]> => {
  const count = await page.evaluate(watch, part);
  const missed = page.locator("[data-control='not reached']");
  // More controls may appear while the page scrolls to the focus.
  for (let rounds = 0; rounds === 0 || (rounds < 5 && (await missed.count()) > 0); rounds += 1) {
    for (let presses = 0; presses < count + 3; presses += 1) await page.keyboard.down("Tab");
  }
  await page.keyboard.up("Tab");
  return missed.evaluateAll((elements) => elements.map((element) => element.outerHTML.slice(0, 160)));
};
