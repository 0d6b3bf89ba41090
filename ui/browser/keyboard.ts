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

test("opens, removes and clears recent folders", async ({ page }) => {
  await open(page, "/?recent");
  await choose(page, "#recent li.missing button");
  await expect(page.locator("#recent li")).toHaveCount(3);
  await choose(page, "[data-recent=recent-2]");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await command(page, "recent folders");
  await expect(page.locator("[data-recent=recent-1]")).toBeFocused();
  await choose(page, "#clear-recent");
  await expect(page.locator("#recent")).toBeHidden();
});

test("goes from the results of a finished run to its plan and back", async ({ page }) => {
  await open(page, results);
  await expect(page.locator("#mistakes img").first()).toBeVisible();
  await page.keyboard.press("Meta+1");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await expect(page.locator(".toolbar .title span")).toHaveText("Plan of an earlier run");
  await page.keyboard.press("Meta+3");
  await expect(page).toHaveURL(/#\/results\/r3/);
});

test("opens the results of a run that still trains", async ({ page }) => {
  await open(page, training);
  await expect(page.locator("#stages a[href*=results]")).toBeVisible();
  await page.keyboard.press("Meta+3");
  await expect(page).toHaveURL(/#\/results\/demo/);
});

test("changes the memory limits of a training", async ({ page }) => {
  await open(page, training);
  await choose(page, "#open-limits");
  await tabTo(page, page.locator("#limit-leave"));
  await expect(page.locator("#limit-leave-value")).toHaveText("2.4 GB, 10 %");
  for (let presses = 0; presses < 6; presses += 1) await page.keyboard.press("ArrowRight");
  await expect(page.locator("#limit-leave-value")).toHaveText("3.0 GB, 13 %");
  await tabTo(page, page.locator("#limit-cap"));
  await page.keyboard.type("much");
  await page.keyboard.press("Enter");
  await expect(page.locator("#memory-limits [role=alert]")).toContainText("Enter a size from 0.1 to 24.0 GB");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("6.5");
  await page.keyboard.press("Enter");
  await expect(page.locator("#limit-cap")).toHaveAttribute("aria-invalid", "false");
  await page.keyboard.press("Escape");
  await expect(page.locator("#memory-limits")).toHaveCount(0);
  await choose(page, "#open-limits");
  await expect(page.locator("#limit-cap")).toHaveValue("6.5");
});

test("adds a plan to the queue, and changes the queue", async ({ page }) => {
  await open(page, "/?active&queue#/inspection/texts");
  await expect(page.locator("#train")).toHaveText(/Add to queue/);
  await expect(page.locator("#train")).toBeEnabled();
  await page.keyboard.press("Meta+Enter");
  await expect(page.locator("#train")).toBeDisabled();
  await choose(page, "#plan-queued a");
  await expect(page.locator("[data-queued]")).toHaveCount(4);
  await choose(page, "[data-queued=queued-2] button >> nth=0");
  await expect(page.locator("[data-queued]").first()).toHaveAttribute("data-queued", "queued-2");
  await choose(page, "[data-queued=queued-1] button >> nth=1");
  await expect(page.locator("[data-queued]")).toHaveCount(3);
});

test("adds an ended run to the queue while another one trains", async ({ page }) => {
  await open(page, "/?active&queue");
  await tabTo(page, page.locator("[data-run-row=r4] .button"));
  await expect(page.locator("[data-run-row=r4] .button")).toHaveText("Enqueue");
  await page.keyboard.press("Enter");
  await expect(page.locator("main > .notice p")).toContainText("It trains after img_caltech101_20");
  await expect(page.locator("[data-queued]")).toHaveCount(4);
  await open(page, "/?active#/results/r3");
  await choose(page, "#train-longer");
  await expect(page.locator("#train-longer-dialog .primary")).toHaveText("Add to queue");
  await page.keyboard.press("Enter");
  await expect(page.locator("main > .notice p")).toContainText("in the queue");
  await expect(page).toHaveURL(/#\/results\/r3/);
});

test("compares a run of the list with another one", async ({ page }) => {
  await open(page, "/");
  await tabTo(page, page.locator("[data-run-row=r3] .name"));
  await command(page, "compare with");
  await expect(page).toHaveURL(/#\/results\/r3/);
  await expect(page.locator("#compare")).toBeFocused();
});

test("starts the queue after a restart", async ({ page }) => {
  await open(page, "/?queue=held");
  await choose(page, "#start-queue");
  await expect(page.locator("#start-queue")).toHaveCount(0);
  await expect(page.locator("#queue .problem")).toHaveCount(0);
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

test("looks up a base model at a hub, downloads it and starts from it", async ({ page }) => {
  await open(page, "/?cache#/inspection/demo");
  const from = page.locator("#setting-from");
  await tabTo(page, from);
  await page.keyboard.press("ArrowDown");
  await expect(page.locator("#base-model")).toBeVisible();
  await tabTo(page, page.locator("#hub-name"));
  await page.keyboard.type("my model");
  await page.keyboard.press("Enter");
  await expect(page.locator("#base-hub-problem")).toContainText("for example Qwen/Qwen3-0.6B");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("Qwen/Qwen3-0.6B");
  await page.keyboard.press("Enter");
  await expect(page.locator("#base-looked-up")).toContainText("apache-2.0");
  await choose(page, "#hub-download");
  await choose(page, "#hub-use");
  await expect(page.locator("#base-model")).toHaveCount(0);
  await expect(page.locator("#setting-trains")).toBeVisible();
  await tabTo(page, from);
  await expect(from).toHaveValue("weights-1");
});

test("starts from a model that is on this machine, and leaves the sheet with Escape", async ({ page }) => {
  await open(page, "/?cache#/inspection/demo");
  await tabTo(page, page.locator("#setting-from"));
  await page.keyboard.press("ArrowDown");
  await expect(page.locator("[data-found]")).toHaveCount(2);
  await page.keyboard.press("Escape");
  await expect(page.locator("#base-model")).toHaveCount(0);
  await tabTo(page, page.locator("#setting-from"));
  await page.keyboard.press("ArrowDown");
  await choose(page, "[data-found=weights-1]");
  await expect(page.locator("#setting-trains")).toBeVisible();
});

test("changes a setting that only the sheet of all settings has", async ({ page }) => {
  await open(page, "/?speed=0#/inspection/demo");
  await expect(page.locator("#peak")).toContainText("GB");
  await page.keyboard.press("Meta+,");
  await expect(page.locator("#search-settings")).toBeFocused();
  await page.keyboard.type("decay");
  const field = page.locator("#all-weight_decay");
  await tabTo(page, field);
  await page.keyboard.type("11");
  await page.keyboard.press("Enter");
  await expect(page.locator("#all-hint-weight_decay")).toHaveText("Must be a number from 0 to 10.");
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("0.1");
  await page.keyboard.press("Tab");
  await expect(page.locator("[data-setting=weight_decay]")).toContainText("changed");
  await expect(page.locator("#all-settings-sheet header [role=status]")).toHaveText("1 setting differs from the suggested plan");
  await page.keyboard.press("Escape");
  // The page behind the sheet shows its text already while the sheet closes.
  await expect(page.locator("#all-settings-sheet")).toHaveCount(0);
  await expect(page.locator("#all-settings")).toHaveText("All settings… (1 more changed)");
  await page.keyboard.press("Meta+,");
  await tabTo(page, page.getByRole("button", { name: "Reset Weight decay" }));
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-setting=weight_decay]")).not.toContainText("changed");
  await expect(field).toHaveValue("");
});

test("shares a setting of the plan page with the sheet, both ways", async ({ page }) => {
  await open(page, "/?speed=0#/inspection/demo");
  await tabTo(page, page.locator("#setting-epochs"));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("12");
  await choose(page, "#all-settings");
  await expect(page.locator("#all-epochs")).toHaveValue("12");
  await tabTo(page, page.locator("#all-image_size"));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("100");
  await choose(page, "#all-settings-done");
  await expect(page.locator("#setting-resolution")).toHaveValue("100");
  await choose(page, "#reset-plan");
  await expect(page.locator("#setting-epochs")).toHaveValue("30");
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
  await expect(page.locator("#matrix-cell")).toContainText("Motorbikes, predicted as llama");
  for (const key of ["Home", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await expect(page.locator("#mistakes h2")).toHaveText("Motorbikes");
  await page.keyboard.press("Escape");
  await expect(page.locator("#mistakes h2")).toHaveText("Worst mistakes");
  await tabTo(page, page.locator("#mistakes .picture").first());
  await choose(page, "#show-classes");
  await choose(page, ".classes th:first-child button");
  await expect(page.locator(".classes th").first()).toHaveAttribute("aria-sort", "ascending");
  await choose(page, "#mistakes .between button");
  await expect(page.locator("#mistakes li")).toHaveCount(14);
});

test("opens the menus of charts, classes and samples, and finds their commands", async ({ page }) => {
  const menus: string[] = [];
  page.on("console", (message) => message.type() === "info" && menus.push(message.text()));
  const recordCopies = () =>
    page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text: string) => void (document.body.dataset.copied = text) } }));
  await open(page, training);
  await recordCopies();
  await tabTo(page, page.locator("[role=group][aria-label=Charts]"));
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => menus.join()).toContain("save-chart");
  await command(page, "copy values");
  await expect(page.locator("body")).toHaveAttribute("data-copied", /^Time\t/);
  await openPalette(page);
  await expect(page.locator("[data-command=save-chart]")).toBeVisible();

  await open(page, results);
  await recordCopies();
  await choose(page, "#show-classes");
  await tabTo(page, page.locator(".classes tbody tr").first());
  const second = page.locator(".classes tbody tr").nth(1);
  await page.keyboard.press("ArrowDown");
  await expect(second).toBeFocused();
  const name = (await second.locator("td").first().textContent())!;
  await page.keyboard.press("ContextMenu");
  await expect.poll(() => menus.join()).toContain("copy-class");
  await command(page, "copy row");
  await expect(page.locator("body")).toHaveAttribute("data-copied", new RegExp(`^${name}\t`));
  await expect(second).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator("#mistakes h2")).toHaveText(name);
  await tabTo(page, page.locator("#mistakes .picture").first());
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => menus.join()).toContain("copy-sample");
  await command(page, "copy file name");
  await expect(page.locator("body")).toHaveAttribute("data-copied", "image_0.jpg");
});

test("opens the menu of a duplicate", async ({ page }) => {
  const menus: string[] = [];
  page.on("console", (message) => message.type() === "info" && menus.push(message.text()));
  await open(page, "/?#/inspection/demo");
  await choose(page, "#show-data");
  await tabTo(page, page.locator("#data-duplicates .samples button").first());
  await page.keyboard.press("Shift+F10");
  await expect.poll(() => menus.join()).toContain("copy-sample");
});

test("shows the labels that may be wrong, and their files", async ({ page }) => {
  await open(page, "/?suspicious#/results/r3");
  await expect(page.locator("#suspicious")).toContainText("2 more may be wrong");
  await tabTo(page, page.locator("#suspicious .picture").last());
  await open(page, "/?results=texts&suspicious#/results/r3");
  await tabTo(page, page.locator("#suspicious li button").first());
  await expect(page.locator("#suspicious li button").first()).toHaveText("Show in Finder");
  await expect(page.locator("#mistakes li p").first()).toContainText("The parcel came on Tuesday");
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

test("tries a pasted image and a pasted text", async ({ page, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await open(page, results);
  await expect(page.locator("#choose-file")).toBeVisible();
  await page.evaluate(async () => {
    const canvas = document.createElement("canvas");
    canvas.getContext("2d")!.fillRect(0, 0, 40, 40);
    const picture = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture! })]);
  });
  await page.keyboard.press("ControlOrMeta+v");
  await expect(page.locator("#try-it")).toContainText("Picture");
  await expect(page.locator("#try-it")).toContainText("91 %");

  await open(page, "/?results=language#/results/r3");
  await expect(page.locator("#try-go")).toBeDisabled();
  await page.evaluate(() => navigator.clipboard.writeText("The harbour "));
  await page.keyboard.press("ControlOrMeta+v");
  await expect(page.locator("#try-text")).toHaveValue("The harbour ");
  // Into the field itself, the system pastes.
  await tabTo(page, page.locator("#try-text"));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.press("ControlOrMeta+v");
  await expect(page.locator("#try-text")).toHaveValue("The harbour ");
  await choose(page, "#try-go");
  await expect(page.locator(".generated")).toContainText("The harbour lay still");
});

test("a model of another version cannot be helped by locating its data", async ({ page }) => {
  await open(page, "/?results=version#/results/r3");
  await expect(page.locator(".waiting .problem")).toContainText("use the version of Ebb that wrote it");
  await expect(page.locator("#locate-folder")).toHaveCount(0);
  await open(page, "/?results=moved&moved#/results/r3");
  await expect(page.locator("#locate-folder")).toBeVisible();
});

/** A page with a camera. It films a drawing, or is refused with this error. */
const withCamera = (page: Page, error = "") =>
  page.addInitScript((name) => {
    const film = async () => {
      if (name) throw new DOMException("", name);
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [320, 240];
      canvas.getContext("2d")?.fillRect(40, 40, 80, 80);
      const stream = canvas.captureStream(10);
      Object.assign(window, { filmed: stream });
      return stream;
    };
    const devices = { enumerateDevices: async () => [{ kind: "videoinput" }], getUserMedia: film };
    Object.defineProperty(navigator, "mediaDevices", { value: devices });
  }, error);

test("tries a picture of the camera", async ({ page }) => {
  await withCamera(page);
  await open(page, results);
  await choose(page, "#open-camera");
  await expect(page.locator("#try-it video")).toBeVisible();
  await expect.poll(() => page.locator("#try-it video").evaluate((video: HTMLVideoElement) => video.videoWidth)).toBe(320);
  await choose(page, "#camera-take");
  await expect(page.locator("#try-it")).toContainText("91 %");
  // The camera is released.
  const state = () => page.evaluate(() => (window as unknown as { filmed: MediaStream }).filmed.getTracks()[0]!.readyState);
  await expect.poll(state).toBe("ended");
});

test("chats with a language model, and asks it questions", async ({ page }) => {
  await open(page, "/?results=chat#/results/r3");
  await tabTo(page, page.locator("#chat-text"));
  await page.keyboard.type("Hello");
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-answer=trained]")).toContainText("It is a Tuesday");
  await expect(page.locator("#chat-text")).toHaveValue("");
  await choose(page, "#chat-reset");
  await expect(page.locator("[data-answer=trained]")).toHaveCount(0);
  await open(page, "/?results=chat&slow#/results/r3");
  await tabTo(page, page.locator("#chat-text"));
  await page.keyboard.type("Hello");
  await page.keyboard.press("Enter");
  await choose(page, "#chat-stop");
  await expect(page.locator("#chat-send")).toBeVisible();
  await open(page, "/?results=chat&dropped=sums.jsonl#/results/r3");
  await expect(page.locator("#questions-table")).toContainText("exact match");
  await expect(page.locator("#questions-table")).toContainText("95.0 %");
});

test("compares the answers to the prompts of a run over time", async ({ page }) => {
  await open(page, "/?results=chat&prompts#/results/r3");
  await choose(page, "#show-prompts");
  await expect(page.locator("#prompt-answers")).toContainText("After step 1,440, the best evaluation");
  await choose(page, "#answers-first");
  await expect(page.locator("#prompt-answers")).toContainText("7/7/2026 is a date.");
  await tabTo(page, page.locator("#answers-step"));
  await page.keyboard.press("ArrowRight");
  await expect(page.locator("#prompt-answers [role=status]")).toHaveText("After step 960");
  await page.keyboard.press("End");
  await expect(page.locator("#answers-last")).toHaveAttribute("aria-pressed", "true");
  await expect(page.locator("#prompt-answers dd").first()).toHaveText("The seventh of July, two thousand and twenty-six.");
});

test("says why the camera does not open", async ({ page }) => {
  await withCamera(page, "NotAllowedError");
  await open(page, results);
  await choose(page, "#open-camera");
  await expect(page.locator("#camera-problem")).toContainText("Allow access in System Settings");
  await choose(page, "#camera-close");
  await expect(page.locator("#open-camera")).toBeVisible();
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

test("trains a finished run longer", async ({ page }) => {
  await open(page, results);
  await tabTo(page, page.locator("#train-longer"));
  await page.keyboard.press("Enter");
  await expect(page.locator("#epochs-in-all")).toBeFocused();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("30");
  await page.keyboard.press("Enter");
  await expect(page.locator("#train-longer-dialog [role=alert]")).toContainText("choose at least 31 epochs");
  await page.locator("#epochs-in-all").focus();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("40");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/#\/run\/r3/);
});

test("chooses a recovery step, of a run and of a plan", async ({ page }) => {
  await open(page, "/?at=240&speed=0&short&status=failed#/run/demo");
  await choose(page, "[data-recovery=resolution]");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await expect(page.locator("#setting-resolution")).toHaveValue("128");
  await expect(page.locator("#setting-epochs")).toHaveValue("60");
  await open(page, "/?large#/inspection/demo");
  await expect(page.locator("#recovery")).toContainText("3.7 GB, which is enough");
  await choose(page, "[data-recovery=resolution]");
  await expect(page.locator("#setting-resolution")).toHaveValue("128");
  await choose(page, "[data-recovery=optimizer]");
  await expect(page.locator("#all-settings")).toHaveText("All settings… (1 more changed)");
});

test("compares two runs", async ({ page }) => {
  await open(page, results);
  await tabTo(page, page.locator("#compare"));
  await page.keyboard.type("cifar");
  await expect(page.locator("#compare + p")).toContainText("This run is better");
  await choose(page, "#show-comparison");
  await expect(page.locator("#comparison figure")).toHaveCount(3);
  await expect(page.locator("[data-compared=memory_cap_bytes]")).toContainText("8.0 GB");
  await expect(page.locator("#compared-samples")).toContainText("share 1,190 samples");
  await page.keyboard.press("Escape");
  await expect(page.locator("#comparison")).toHaveCount(0);
  await choose(page, "#show-comparison");
  await choose(page, "#comparison-done");
  await expect(page.locator("#comparison")).toHaveCount(0);
});

test("goes anywhere by the palette and by shortcuts", async ({ page }) => {
  await open(page, "/?active#/results/r3");
  await openPalette(page);
  for (const key of ["ArrowDown", "ArrowDown", "ArrowUp"]) await page.keyboard.press(key);
  await expect(page.locator("#palette [aria-selected=true]")).toHaveAttribute("data-command", "sample");
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

test("imports a run, and says why a damaged one is refused", async ({ page }) => {
  await open(page, "/");
  await command(page, "import a run");
  await expect(page).toHaveURL(/#\/results\/r3/);
  await open(page, "/?damaged");
  await command(page, "import a run");
  await expect(page.locator("main > .refusal p")).toContainText("birds.ebbrun was not imported: it is damaged");
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
  await tabTo(page, page.locator("#run-tags"));
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.type("first, try");
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-run-row=r4] .name")).toHaveText("shelves, first try");
  await expect(page.locator("[data-run-row=r4] .name")).toBeFocused();
  await expect(page.locator("[data-run-row=r4] .tags")).toHaveText("firsttry");
  await command(page, "trash");
  await expect(page.locator("[data-run-row=r4]")).toHaveCount(0);

  await tabTo(page, page.locator("#filter-state"));
  await page.keyboard.type("Fin");
  await expect(page.locator("[data-run-row]")).toHaveCount(2);
  await tabTo(page, page.locator("#filter-tag"));
  await page.keyboard.type("sh");
  await expect(page.locator("[data-run-row]")).toHaveCount(1);
  await tabTo(page, page.locator("#filter-state"));
  await page.keyboard.type("Fail");
  await choose(page, "#show-all-runs");
  await expect(page.locator("[data-run-row]")).toHaveCount(5);

  await tabTo(page, page.locator("[data-run-row=r6] .button"));
  await tabTo(page, page.locator("[data-run-row=r5] .name"));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/#\/results\/r5/);
});

test("locates the data of a failed run, then resumes it", async ({ page }) => {
  await open(page, "/?at=240&speed=0&status=failed&moved#/run/demo");
  await expect(page.locator("#data-moved")).toContainText("was moved or deleted");
  await choose(page, "#locate-data");
  await expect(page.locator("#data-located")).toBeVisible();
  await page.keyboard.press("Meta+Enter");
  await expect(page.locator("#pause")).toBeVisible();
});

test("chooses another folder after one that cannot be trained", async ({ page }) => {
  await open(page, "/?#/inspection/refused");
  await expect(page.locator("#layouts dt")).toHaveCount(4);
  await choose(page, "#choose-another");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
});

test("says which of two dropped folders is not opened", async ({ page }) => {
  await open(page, "/?dropped-two#/inspection/demo");
  await expect(page.locator("main > .notice p")).toContainText("shelves was left out");
  await choose(page, "main > .notice button");
  await expect(page.locator("main > .notice p")).toHaveCount(0);
});

test("says which of two folders on the Dock icon is not opened", async ({ page }) => {
  await open(page, "/?launched-with-two");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
  await expect(page.locator("main > .notice p")).toContainText("shelves was left out");
});

test("an error does not follow to another page", async ({ page }) => {
  await open(page, "/?refuse#/inspection/demo");
  await expect(page.locator("#train")).toBeEnabled();
  await page.keyboard.press("Meta+Enter");
  await expect(page.locator("main > .refusal p")).toBeVisible();
  await choose(page, "button.back");
  await expect(page.locator("#drop-zone")).toBeVisible();
  await expect(page.locator("main > .refusal p")).toHaveCount(0);
});

test("evaluates a dropped table instead of reading it as one text", async ({ page }) => {
  await open(page, "/?results=texts&dropped=test.csv#/results/r3");
  await choose(page, "#try-evaluate");
  await expect(page.locator("#folder-result")).toHaveText("88.0 %");
  await expect(page.locator("#try-it li")).toHaveCount(4);
  await open(page, "/?results=texts&dropped=test.csv&again#/results/r3");
  await choose(page, "#try-open");
  await expect(page).toHaveURL(/#\/inspection\/demo/);
});

test("shows the targets of a model that also has classes", async ({ page }) => {
  await open(page, "/?results=mixed#/results/r3");
  await choose(page, "#show-targets");
  await expect(page.locator(".middle table tbody tr")).toHaveCount(2);
  await choose(page, "#show-classes");
  await expect(page.locator(".classes table")).toBeVisible();
});

test("says why there is no run to compare with", async ({ page }) => {
  await open(page, "/?empty#/results/r3");
  await expect(page.locator("#mistakes img").first()).toBeVisible();
  await command(page, "compare with");
  await expect(page.locator("main")).toContainText("No other evaluated run has this task.");
});

test("performs by commands what has a button", async ({ page }) => {
  await open(page, training);
  await command(page, "changes of");
  await expect(page.locator("#changes")).toBeVisible();
  await page.keyboard.press("Escape");
  await command(page, "options of the charts");
  await expect(page.locator("#log-scale")).toBeVisible();
  await open(page, "/?results=empty#/results/r3");
  await expect(page.locator("#evaluate")).toBeVisible();
  await openPalette(page);
  await expect(page.locator("[data-command=evaluate]")).toBeVisible();
});

test("moves a run to the trash with the shortcut, but not while a text is edited", async ({ page }) => {
  await open(page, "/?");
  await tabTo(page, page.locator("#search-runs"));
  await page.keyboard.type("shelf");
  await page.keyboard.press("Meta+Backspace");
  await expect(page.locator("[data-run-row=r3]")).toBeVisible();
  await tabTo(page, page.locator("[data-run-row=r3] .name"));
  await page.keyboard.press("Meta+Backspace");
  await expect(page.locator("[data-run-row=r3]")).toHaveCount(0);
});

test("says on the plan how many texts are cut", async ({ page }) => {
  await open(page, "/#/inspection/texts");
  await tabTo(page, page.locator("#setting-resolution"));
  await expect(page.locator("#hint-resolution")).toHaveText("Maximum length of a text, in tokens.");
  await page.keyboard.press("ArrowUp");
  await expect(page.locator("#hint-resolution")).toHaveText("About 412 of 8,000 texts are longer and are cut.");
});
