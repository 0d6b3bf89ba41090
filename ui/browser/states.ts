// Every state in light and dark: it looks like its picture, axe finds nothing, and the keyboard
// reaches every control.
import { AxeBuilder } from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";
import { addressOf, allStates, states } from "../src/host/replay/states";
import { unreachable } from "./tabReach";

/** The day of the recorded run, so that it began "today". */
const NOW = new Date("2026-11-20T14:00:00Z");

/** One state of each part of the list is also checked with increased contrast. */
const first = Object.values(states).map(([state]) => state);

/** What axe finds, one line for each element. Legacy mode only means that it opens no further page,
 * which would be needed for frames of other origins. */
const violations = async (page: Page, part: string, rules: string[] = []) => {
  const builder = new AxeBuilder({ page }).include(part).options({ resultTypes: ["violations"], preload: false, ...(rules.length > 0 ? { runOnly: { type: "rule" as const, values: rules } } : {}) });
  const { violations } = await builder.setLegacyMode().analyze();
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary?.split("\n")[1]}`));
};

for (const state of allStates) {
  test(state.id, async ({ page }) => {
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    await page.clock.setFixedTime(NOW);
    await page.goto(addressOf(state));
    await page.locator(`body[data-state=${state.id}]`).waitFor({ timeout: 30_000 });

    const part = state.part ?? "html";
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme, contrast: "no-preference" });
      if (test.info().project.metadata.linux) await expect.soft(page.locator(part).first()).toHaveScreenshot(`${state.id}-${colorScheme}.png`);
      // Every rule once, best practices included; what depends on the theme in both.
      expect.soft(await violations(page, part, colorScheme === "light" ? [] : ["color-contrast"]), `axe, ${colorScheme}`).toEqual([]);
      if (!first.includes(state)) continue;
      await page.emulateMedia({ contrast: "more" });
      expect.soft(await violations(page, part, ["color-contrast-enhanced"]), `increased contrast, ${colorScheme}`).toEqual([]);
    }
    expect.soft(await unreachable(page, part), "controls that the Tab key does not reach").toEqual([]);
    expect(errors).toEqual([]);
  });
}
