// Every flow without a mouse: no test here clicks.
import { expect, test, type Locator, type Page } from "@playwright/test";

/** Presses Tab until the control has the focus, as a person would. */
const tabTo = async (page: Page, control: Locator) => {
  await control.waitFor();
  for (let presses = 0; presses < 120; presses += 1) {
    await page.keyboard.press("Tab");
    if (await control.evaluate((element) => element === document.activeElement)) return;
  }
  throw new Error(`the Tab key does not reach ${control}`);
};
const choose = async (page: Page, selector: string) => {
  await tabTo(page, page.locator(selector));
  await page.keyboard.press("Enter");
};
const open = async (page: Page, address: string) => {
  await page.goto(address);
  await page.locator("body[data-ready] footer .t3").waitFor();
};
const openPalette = async (page: Page) => {
  await page.keyboard.press("Meta+k");
  await expect(page.locator("#palette input")).toBeFocused();
};
/** Performs the only command with these words. */
const command = async (page: Page, words: string) => {
  await openPalette(page);
  await page.keyboard.type(words);
  await expect(page.locator("#palette [data-command]")).toHaveCount(1);
  await page.keyboard.press("Enter");
};
const training = "/?at=240&speed=0#/run/demo";
const results = "/#/results/r3";

test("opens a folder, by button and by shortcut", async ({ page }) => {
  await open(page, "/");
  await choose(page, "#choose-folder");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await choose(page, "button.back");
  await expect(page.locator("#drop-zone")).toBeVisible();
  await page.keyboard.press("Meta+o");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await page.keyboard.press("Meta+0");
  await choose(page, "#open-sample");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
});

test("changes a plan and starts it", async ({ page }) => {
  await open(page, "/?speed=0#/inspection/demo");
  await tabTo(page, page.locator("#leave"));
  const left = (await page.locator("#leave-value").textContent())!;
  await page.keyboard.press("ArrowLeft");
  await expect(page.locator("#leave-value")).not.toHaveText(left);
  await tabTo(page, page.locator("#setting-epochs"));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("5");
  await tabTo(page, page.locator("#setting-resolution"));
  await expect(page.locator("#hint-epochs")).toContainText("80 steps");
  await page.keyboard.type("128");
  await expect(page.locator("#setting-resolution")).toHaveValue("128");
  await choose(page, "#reset-plan");
  await expect(page.locator("#setting-epochs")).toHaveValue("30");
  await expect(page.locator("#train")).toBeEnabled();
  await page.keyboard.press("Meta+Enter");
  await expect(page).toHaveURL(/#\/run\/demo/);
  await page.keyboard.press("Meta+1");
  await choose(page, "#plan-locked button");
  await expect(page.locator("#setting-epochs")).toBeEnabled();
  await page.keyboard.press("Meta+2");
  await expect(page.locator("#pause")).toBeVisible();
});

test("dismisses why a start was refused", async ({ page }) => {
  await open(page, "/?refuse#/inspection/demo");
  await choose(page, "#train");
  await choose(page, "main > .refusal button");
  await expect(page.locator("main > .refusal p")).toHaveCount(0);
});

test("pauses, saves a checkpoint, stops and resumes", async ({ page }) => {
  await open(page, training);
  await expect(page.locator("#pause")).toBeEnabled();
  await page.keyboard.press("Space");
  await expect(page.locator("#pause")).toContainText("Continue");
  await expect(page.locator("#pause")).toBeEnabled();
  await page.keyboard.press("Space");
  await expect(page.locator("#pause")).toContainText("Pause");
  await page.keyboard.press("Meta+s");
  await expect(page.locator("#status-line")).toContainText("Checkpoint saved");
  await choose(page, "#stop");
  await expect(page.locator("#status-line")).toContainText("Stopped");
  await page.keyboard.press("Meta+Enter");
  await expect(page.locator("#stop")).toBeEnabled();
  await page.keyboard.press("Meta+.");
  await choose(page, "#resume");
  await expect(page.locator("#pause")).toBeVisible();
});

test("reads the charts, their options and the changes", async ({ page }) => {
  await open(page, training);
  await tabTo(page, page.locator("[role=group][aria-label=Charts]"));
  await page.keyboard.press("Shift+ArrowLeft");
  await expect(page.locator(".box")).toBeVisible();
  await expect(page.locator("[aria-live=polite]").filter({ hasText: "Budget line" })).toHaveCount(1);
  await page.keyboard.press("Escape");
  await expect(page.locator(".box")).toHaveCount(0);
  await tabTo(page, page.locator("#memory-ebb"));
  await page.keyboard.press("Enter");
  await expect(page.locator("#memory-ebb")).toHaveAttribute("aria-pressed", "true");

  await choose(page, "#chart-menu");
  await tabTo(page, page.locator("#panel-speed"));
  await page.keyboard.press("Space");
  await expect(page.locator("[data-chart=speed]")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.locator("#chart-menu")).toBeFocused();

  await choose(page, "#open-changes");
  await expect(page.locator("#changes")).toBeFocused();
  await page.keyboard.press("End");
  await expect(page.locator("#changes [aria-selected=true]")).toContainText("11");
  await page.keyboard.press("Escape");
  await expect(page.locator("#open-changes")).toBeFocused();
  await choose(page, "#stress-test");
  await expect(page.locator("#stress-test")).toHaveAttribute("aria-pressed", "true");
});

test("goes from a finished training to the confusion matrix and the classes", async ({ page }) => {
  await open(page, "/?at=240&speed=0&status=finished#/run/demo");
  await expect(page.locator("#show-results")).toBeVisible();
  await page.keyboard.press("Meta+3");
  await tabTo(page, page.locator("#matrix"));
  for (const key of ["End", "ArrowDown"]) await page.keyboard.press(key);
  await expect(page.locator("#matrix-cell")).toContainText("Motorbikes, taken for llama");
  for (const key of ["Home", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await expect(page.locator("#mistakes h2")).toHaveText("Motorbikes");
  await page.keyboard.press("Escape");
  await expect(page.locator("#mistakes h2")).toHaveText("Worst mistakes");
  await choose(page, "#show-classes");
  await choose(page, ".classes th:first-child button");
  await expect(page.locator(".classes th").first()).toHaveAttribute("aria-sort", "ascending");
  await choose(page, "#mistakes .between button");
  await expect(page.locator("#mistakes li")).toHaveCount(14);
});

test("tries images", async ({ page }) => {
  await open(page, results);
  await choose(page, "#choose-file");
  await expect(page.locator("#try-it")).toContainText("91 %");
  await choose(page, "#look");
  await expect(page.locator("#look")).toHaveAttribute("aria-pressed", "true");
  await open(page, "/?several#/results/r3");
  await choose(page, "#choose-file");
  await choose(page, "#save-answers");
  await expect(page.locator("#try-it")).toContainText("Saved as predictions.csv");
});

test("tries a text and a dropped folder", async ({ page }) => {
  await open(page, "/?results=language#/results/r3");
  await tabTo(page, page.locator("#try-text"));
  await page.keyboard.type("The harbour ");
  await page.keyboard.press("Meta+Enter");
  await expect(page.locator(".generated")).toContainText("The harbour lay still");
  await open(page, "/?dropped=holiday/#/results/r3");
  await choose(page, "#try-evaluate");
  await expect(page.locator("#folder-result")).toContainText("88.0");
});

test("exports", async ({ page }) => {
  await open(page, results);
  await expect(page.locator("#export-open")).toBeVisible();
  await page.keyboard.press("Meta+e");
  await tabTo(page, page.locator("#export input:checked"));
  await page.keyboard.press("ArrowDown");
  await expect(page.locator("#export li").nth(1).locator("input")).toBeChecked();
  await choose(page, "#export-go");
  await expect(page.locator("#export")).toContainText("may not write there");
  await page.keyboard.press("Escape");
  await expect(page.locator("#export")).toHaveCount(0);
  await choose(page, "#export-open");
  await expect(page.locator("#export")).toBeVisible();
});

test("compares two runs", async ({ page }) => {
  await open(page, results);
  await tabTo(page, page.locator("#compare"));
  await page.keyboard.type("cifar");
  await expect(page.locator("#compare + p")).toContainText("This run is better");
});

test("goes anywhere by the palette and by shortcuts", async ({ page }) => {
  await open(page, "/?active#/results/r3");
  await openPalette(page);
  for (const key of ["ArrowDown", "ArrowDown", "ArrowUp"]) await page.keyboard.press(key);
  await expect(page.locator("#palette [aria-selected=true]")).toHaveText("Open the sample");
  await page.keyboard.press("Escape");
  await expect(page.locator("#palette")).toHaveCount(0);
  await command(page, "all runs");
  await expect(page.locator("#drop-zone")).toBeVisible();
  await page.keyboard.press("Meta+t");
  await expect(page).toHaveURL(/#\/run\/demo/);
  await page.keyboard.press("Meta+0");
  await choose(page, "#active-pill");
  await expect(page).toHaveURL(/#\/run\/demo/);
  await page.keyboard.press("Meta+=");
  expect(await page.evaluate(() => localStorage.getItem("text-scale"))).toBe("1.1");
  await page.keyboard.press("Meta+-");
  expect(await page.evaluate(() => localStorage.getItem("text-scale"))).toBe("1");
});

test("finds, opens, renames and trashes a run of the list", async ({ page }) => {
  const menus: string[] = [];
  page.on("console", (message) => message.type() === "info" && menus.push(message.text()));
  await open(page, "/");
  await page.locator("[data-run-row=r4]").waitFor();
  await page.keyboard.press("Meta+f");
  await expect(page.locator("#search-runs")).toBeFocused();
  await page.keyboard.type("grocery");
  await expect(page.locator("[data-run-row]")).toHaveCount(1);
  await page.keyboard.press("Escape");
  await expect(page.locator("[data-run-row]")).toHaveCount(6);
  await tabTo(page, page.locator("[data-run-row=r4] .name"));
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => menus.join()).toContain("r4");

  await command(page, "rename");
  await expect(page.locator("#edit-run")).toBeVisible();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("shelves, first try");
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-run-row=r4] .name")).toHaveText("shelves, first try");
  await expect(page.locator("[data-run-row=r4] .name")).toBeFocused();
  await command(page, "trash");
  await expect(page.locator("[data-run-row=r4]")).toHaveCount(0);

  await tabTo(page, page.locator("[data-run-row=r6] .button"));
  await tabTo(page, page.locator("[data-run-row=r5] .name"));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/#\/results\/r5/);
});
