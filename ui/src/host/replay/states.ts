// Every state of the window that the replay host can show. `states.html` of the development server
// lists them, and the browser tests visit each: a new state is tested by adding a line here.

export interface State {
  /** Names its picture. */
  id: string;
  title: string;
  /** Where it is: `?` and the parameters of the replay host, then the hash of the view. */
  at: string;
  /** What is done there, in order; see `steps.ts`. */
  steps?: string[];
  /** What is visible once the state is reached. */
  shows: string;
  /** The part that its picture shows, if not the whole window. */
  part?: string;
}

const still = "?at=240&speed=0";
const palette = "body@Meta+k";
/** The samples beside a plan are shown. */
const [images, texts] = ["#first-samples li:nth-child(8) img?", "#first-samples li:nth-child(3)?"];

export const states: Record<string, State[]> = {
  Welcome: [
    { id: "welcome", title: "Runs of the app and the terminal", at: "?", shows: "[data-run-row=r6]" },
    { id: "welcome-empty", title: "No run yet", at: "?empty", shows: ".none" },
    { id: "welcome-active", title: "A run trains in this window", at: "?active", shows: "#active-pill", part: ".toolbar" },
    { id: "welcome-drag", title: "A folder is dragged over the window", at: "?drag", shows: "#drop-zone.over" },
    { id: "welcome-found", title: "Runs that a search finds", at: "?", steps: ["#search-runs=shelf"], shows: "[data-run-row=r3]", part: "aside" },
    { id: "welcome-tag", title: "Runs with a tag", at: "?", steps: ["#filter-tag=shelf"], shows: "#filter-tag option:checked:not([value=''])", part: "aside" },
    { id: "welcome-filtered-out", title: "No run of this state and tag", at: "?", steps: ["#filter-tag=shelf", "#filter-state=failed"], shows: "#show-all-runs", part: "aside" },
    { id: "welcome-not-found", title: "A search finds nothing", at: "?", steps: ["#search-runs=zebra"], shows: "aside [role=status]", part: "aside" },
    { id: "welcome-device-check", title: "The GPU is checked at the first launch", at: "?first-check", shows: "#device-check", part: "footer" },
    { id: "welcome-wrong-gpu", title: "The GPU failed its check", at: "?wrong-gpu", shows: "footer .name", part: "footer" },
    { id: "status-warning", title: "Memory pressure in the status bar", at: "?level=warning", shows: "footer .warning", part: "footer" },
    { id: "status-critical", title: "Critical memory pressure in the status bar", at: "?level=critical", shows: "footer .critical", part: "footer" },
    { id: "welcome-recent", title: "Folders that were opened last", at: "?recent", shows: "#recent li", part: ".intro" },
    { id: "welcome-queue", title: "Runs wait for their turn", at: "?active&queue", shows: "#queue li", part: "aside" },
    { id: "welcome-queue-held", title: "The waiting runs must be started", at: "?queue=held", shows: "#start-queue", part: "#queue" },
    { id: "welcome-import-refused", title: "A damaged run is not imported", at: "?damaged", steps: [palette, "[data-command=import-run]"], shows: "main > .refusal p" },
    { id: "welcome-linux", title: "On Linux", at: "?platform=linux", shows: "[data-run-row=r6]" },
  ],
  Plan: [
    { id: "plan", title: "Images in one folder per class", at: "?#/inspection/demo", steps: [images], shows: ".measured #time" },
    { id: "plan-texts", title: "Texts in one folder per class", at: "?#/inspection/texts", steps: [texts], shows: ".measured #time" },
    { id: "plan-texts-cut", title: "Some texts are longer than the model reads", at: "?#/inspection/texts", steps: [".measured #time?", "#setting-resolution=128", ".figures.stale?"], shows: ".figures:not(.stale)", part: "fieldset" },
    { id: "plan-table", title: "A table with targets", at: "?#/inspection/table", steps: [images], shows: ".measured #time" },
    { id: "plan-conversations", title: "Conversations as the chosen model reads them", at: "?#/inspection/chats", steps: ["#conversations mark?"], shows: "#conversations li:nth-child(3)", part: "#conversations" },
    { id: "plan-reading", title: "The folder is being read", at: "?#/inspection/reading", shows: "#class-list" },
    { id: "plan-refused", title: "A folder that cannot be trained", at: "?#/inspection/refused", shows: "#layouts" },
    { id: "plan-too-large", title: "It does not fit into memory", at: "?large#/inspection/demo", steps: [images], shows: ".too-large" },
    { id: "plan-weights", title: "From pretrained weights", at: "?#/inspection/demo", steps: ["#setting-from=…", "#base-folder"], shows: "#setting-trains option", part: "fieldset" },
    { id: "plan-wrong-field", title: "A field is wrong", at: "?#/inspection/demo", steps: ["#setting-epochs=0"], shows: "p.wrong", part: "fieldset" },
    { id: "plan-refused-start", title: "The start is refused", at: "?refuse#/inspection/demo", steps: ["#train"], shows: "main > .refusal p", part: "main > .refusal" },
    { id: "plan-busy", title: "Another folder is training", at: "?active#/inspection/texts", shows: "#active-pill", part: ".toolbar" },
    { id: "plan-drag", title: "A folder is dragged over a plan", at: "?drag#/inspection/demo", steps: [images], shows: ".release", part: "main" },
    { id: "plan-time-unknown", title: "A GPU that has not trained this network yet", at: "?gpu#/inspection/demo", shows: ".unknown #time", part: ".figures" },
    { id: "plan-queued", title: "The plan trains after the running training", at: "?active#/inspection/texts", steps: ["#active-pill?", texts, "#train"], shows: "#plan-queued" },
    { id: "plan-earlier-run", title: "The plan of a finished run", at: "?#/results/r3", steps: ["#mistakes img?", "#stages > :nth-child(1)", images], shows: "#stages a[href*=results]" },
    { id: "plan-locked", title: "The plan of the running training", at: "?speed=0#/inspection/demo", steps: [".figures .measured?", "#train", "nav a[href*=inspection]:not([aria-current])", images], shows: "#plan-locked" },
  ],
  "Base model": [
    { id: "base-model", title: "Models on this machine", at: "?cache#/inspection/demo", steps: ["#setting-from=…"], shows: "[data-found]", part: "#base-model" },
    { id: "base-model-none", title: "No model on this machine", at: "?#/inspection/texts", steps: ["#setting-from=…"], shows: "#base-none", part: "#base-model" },
    { id: "base-model-gguf-refused", title: "A file that is no model", at: "?#/inspection/texts", steps: ["#setting-from=…", "#base-gguf"], shows: "#base-disk-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-asking", title: "The hub is asked", at: "?slow#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up"], shows: "#hub-stop", part: "#base-model" },
    { id: "base-model-offered", title: "Size, licence and memory before the download", at: "?#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up"], shows: "#hub-download", part: "#base-model" },
    { id: "base-model-large", title: "A model that does not fit into memory", at: "?hub=large#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=org/large", "#hub-look-up"], shows: "#hub-download", part: "#base-model" },
    { id: "base-model-full", title: "The disk is too small", at: "?hub=full#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up", "#hub-download"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-terms", title: "A model with terms", at: "?hub=terms#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=org/terms", "#hub-look-up"], shows: "#hub-token", part: "#base-model" },
    { id: "base-model-unknown", title: "A name that the hub does not know", at: "?hub=none#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=org/nothing", "#hub-look-up"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-wrong-name", title: "A name with spaces", at: "?#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=my model", "#hub-look-up"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-offline", title: "The hub cannot be reached", at: "?hub=offline#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-downloading", title: "A model is downloaded", at: "?slow&hub=download#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up", "#hub-download"], shows: "#hub-progress", part: "#base-model" },
    { id: "base-model-broken", title: "The download was interrupted", at: "?hub=broken#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up", "#hub-download"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "base-model-downloaded", title: "The model is complete", at: "?#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up", "#hub-download"], shows: "#hub-use", part: "#base-model" },
  ],
  "All settings": [
    { id: "settings", title: "All settings", at: "?#/inspection/demo", steps: ["#all-settings"], shows: "#all-optimizer", part: "#all-settings-sheet" },
    { id: "settings-changed", title: "Settings that were changed", at: "?#/inspection/demo", steps: ["#all-settings", "#all-optimizer=lion", "#all-epochs=60", "#all-memory_cap_bytes=8GB", "#only-changed"], shows: "[data-setting=memory_cap_bytes] .mark", part: "#all-settings-sheet" },
    { id: "settings-found", title: "A search, and a wrong value", at: "?#/inspection/demo", steps: ["#all-settings", "#search-settings=decay", "#all-weight_decay=11"], shows: "#all-settings-sheet p.wrong", part: "#all-settings-sheet" },
    { id: "settings-problem", title: "Settings that do not work together", at: "?#/inspection/demo", steps: ["#all-settings", "#all-adapter_alpha=16", "#search-settings=adapter"], shows: "[data-setting=adapter_alpha] .mark", part: "#all-settings-sheet" },
    { id: "settings-not-found", title: "No setting matches", at: "?#/inspection/demo", steps: ["#all-settings", "#search-settings=zebra"], shows: "#all-settings-sheet .none", part: "#all-settings-sheet" },
    { id: "settings-locked", title: "The settings of the running training", at: "?speed=0#/inspection/demo", steps: ["#train", "nav a[href*=inspection]:not([aria-current])", "#plan-locked?", "#all-settings"], shows: "[data-setting=optimizer]", part: "#all-settings-sheet" },
  ],
  Data: [
    { id: "data", title: "The images of a folder", at: "?#/inspection/demo", steps: [images, "#show-data"], shows: "#data-drawn img" },
    { id: "data-texts", title: "The rows of a table", at: "?data=texts#/inspection/texts", steps: [texts, "#show-data"], shows: "#data-table td" },
    { id: "data-searching", title: "Duplicates are being searched", at: "?duplicates=reading#/inspection/demo", steps: ["#show-data"], shows: "#data-duplicates progress", part: "#data-duplicates" },
  ],
  Training: [
    { id: "training", title: "Under memory pressure", at: `${still}#/run/demo`, shows: "#open-changes" },
    { id: "training-start", title: "The first seconds", at: "?at=3&speed=0#/run/demo", shows: "#pause" },
    { id: "training-long", title: "A run of 400,000 steps", at: "?long&speed=0#/run/demo", steps: ["#time-shown > :last-child"], shows: "#time-shown > :last-child[aria-pressed=true]" },
    { id: "training-paused", title: "Paused", at: `${still}#/run/demo`, steps: ["#pause"], shows: "#pause.primary", part: ".toolbar" },
    { id: "training-stopped", title: "Stopped", at: `${still}#/run/demo`, steps: ["#stop"], shows: "#resume" },
    { id: "training-finished", title: "Finished", at: "?at=222&speed=0&status=finished#/run/demo", shows: "#show-results" },
    { id: "training-recovery", title: "Ended because memory was short", at: `${still}&short&status=failed#/run/demo`, shows: "#recovery li" },
    { id: "training-failed", title: "Failed", at: `${still}&status=failed#/run/demo`, shows: "#resume" },
    { id: "training-data-moved", title: "Failed, because its data have moved", at: `${still}&status=failed&moved#/run/demo`, shows: "#locate-data" },
    { id: "training-ended-early", title: "Ended early", at: `${still}&status=ended_early#/run/demo`, shows: "#last-range" },
    { id: "training-elsewhere", title: "A run of the terminal", at: `${still}#/run/r2`, shows: "#open-changes", part: ".toolbar" },
    { id: "training-changes", title: "A change is chosen in the list", at: `${still}#/run/demo`, steps: ["#open-changes", "#change-3", ".area .box?"], shows: "#change-3[aria-selected=true]" },
    { id: "training-changes-stress-test", title: "A stress test in the list of changes", at: `${still}#/run/demo`, steps: ["#stress-test", "#stress-test[aria-pressed=true]?", "#open-changes", "#changes .change?", "#changes@End"], shows: "#changes .change:last-child[aria-selected=true]", part: "#changes" },
    { id: "training-notes", title: "Notes", at: `${still}#/run/demo`, steps: ["#open-notes"], shows: ".notes", part: ".popover .window" },
    { id: "training-charts", title: "More charts, by step, logarithmic", at: `${still}#/run/demo`, steps: ["#chart-menu", "#panel-speed", "#panel-gradient", "#axis-step", "#log-scale"], shows: "#log-scale:checked" },
    { id: "training-gpu-time", title: "GPU time per command buffer", at: `${still}&gpu#/run/demo`, steps: ["#chart-menu", "#panel-gpu"], shows: "[data-chart=gpu]:not([hidden])" },
    { id: "training-ebb-only", title: "Memory of Ebb only", at: `${still}#/run/demo`, steps: ["#memory-ebb"], shows: "#memory-ebb[aria-pressed=true]", part: ".area" },
    { id: "training-limits", title: "Memory limits", at: `${still}#/run/demo`, steps: ["#open-limits", "#limit-cap=6"], shows: "#limit-cap", part: ".popover .window" },
    { id: "training-limits-wrong", title: "A memory cap that is no size", at: `${still}#/run/demo`, steps: ["#open-limits", "#limit-cap=much"], shows: "#limit-cap[aria-invalid=true]", part: ".popover .window" },
    { id: "training-machines", title: "Several machines train one run", at: `${still}&machines#/run/demo`, shows: "#machines [data-rank='2']" },
    { id: "training-machine-memory", title: "The memory of one machine over time", at: `${still}&machines#/run/demo`, steps: ["#machines [data-rank='2'] button"], shows: "#machines [data-rank='2'] [aria-pressed=true]", part: ".area" },
    { id: "training-stress-test", title: "Stress test", at: `${still}#/run/demo`, steps: ["#stress-test"], shows: "#stress-test[aria-pressed=true]" },
  ],
  Results: [
    { id: "results", title: "Image classification", at: "?#/results/r3", shows: "#mistakes img" },
    { id: "results-bad", title: "Not learning", at: "?results=bad#/results/r3", shows: "#mistakes img", part: "#judgement" },
    { id: "results-regression", title: "Regression", at: "?results=regression#/results/r3", shows: "#mistakes img" },
    { id: "results-language", title: "Language model", at: "?results=language#/results/r3", shows: "#try-text" },
    { id: "results-mixed", title: "Classes and regression targets", at: "?results=mixed#/results/r3", steps: ["#mistakes img?", "#show-targets"], shows: ".middle svg circle" },
    { id: "results-compression", title: "Token compression", at: "?results=compression#/results/r3", shows: "#try-text" },
    { id: "results-texts", title: "Text classification", at: "?results=texts#/results/r3", shows: "#mistakes li" },
    { id: "results-evaluating", title: "Being evaluated", at: "?results=evaluating#/results/r3", shows: "progress" },
    { id: "results-not-evaluated", title: "Not evaluated yet", at: "?results=empty#/results/r3", shows: "#evaluate" },
    { id: "results-other-version", title: "Another version of Ebb wrote the model", at: "?results=version#/results/r3", shows: ".waiting .problem", part: ".page" },
    { id: "results-data-missing", title: "The data have moved", at: "?results=missing#/results/r3", shows: "#locate", part: "#mistakes" },
    { id: "results-classes", title: "Classes and calibration", at: "?#/results/r3", steps: ["#show-classes"], shows: ".classes table" },
    { id: "results-cell", title: "A cell of the confusion matrix", at: "?#/results/r3", steps: ["#matrix@Enter"], shows: "#matrix .selected" },
    { id: "results-mistakes", title: "All mistakes", at: "?#/results/r3", steps: ["#mistakes .between button"], shows: "#mistakes li:nth-child(14) img", part: "#mistakes" },
    { id: "results-suspicious", title: "Labels that may be wrong", at: "?suspicious#/results/r3", shows: "#suspicious li:nth-child(10) img", part: "#suspicious" },
    { id: "results-suspicious-texts", title: "Labels of texts that may be wrong", at: "?results=texts&suspicious#/results/r3", shows: "#suspicious li", part: "#suspicious" },
    { id: "results-compare", title: "Compared with another run", at: "?#/results/r3", steps: ["#compare=r5"], shows: "#compare + p", part: ".pane:first-child" },
    { id: "compare", title: "Curves and settings of two runs", at: "?#/results/r3", steps: ["#compare=r5", "#show-comparison"], shows: "#comparison[open] table", part: "#comparison" },
  ],
  "Try it": [
    { id: "try-image", title: "An image", at: "?#/results/r3", steps: ["#choose-file"], shows: "#try-it img", part: "#try-it" },
    { id: "try-saliency", title: "Where the model looked", at: "?#/results/r3", steps: ["#choose-file", "#look"], shows: "#try-it canvas.shown", part: "#try-it" },
    { id: "try-several", title: "Several images", at: "?several#/results/r3", steps: ["#choose-file", "#save-answers"], shows: "#try-it tr", part: "#try-it" },
    { id: "try-many", title: "Thousands of images are tried", at: "?slow&dropped-files=10000#/results/r3", shows: "#try-stop", part: "#try-it" },
    { id: "try-many-stopped", title: "Thousands of images, of which some were left out", at: "?dropped-files=2500#/results/r3", shows: "#try-left-out", part: "#try-it" },
    { id: "try-unreadable", title: "An image that cannot be read", at: "?unreadable#/results/r3", steps: ["#choose-file"], shows: "#try-problem", part: "#try-it" },
    { id: "try-folder", title: "A dropped folder", at: "?dropped=holiday/#/results/r3", shows: "#try-evaluate", part: "#try-it" },
    { id: "try-folder-evaluated", title: "A dropped folder, evaluated", at: "?dropped=holiday/#/results/r3", steps: ["#try-evaluate"], shows: "#folder-result", part: "#try-it" },
    { id: "try-table", title: "A dropped table of texts", at: "?results=texts&dropped=test.csv#/results/r3", shows: "#try-evaluate", part: "#try-it" },
    { id: "try-folder-targets", title: "A dropped folder, evaluated for targets", at: "?results=regression&dropped=holiday/#/results/r3", steps: ["#try-evaluate"], shows: "#folder-targets", part: "#try-it" },
    { id: "try-several-mixed", title: "Several images with classes and targets", at: "?results=mixed&several#/results/r3", steps: ["#choose-file", "#save-answers"], shows: "#try-it tr", part: "#try-it" },
    { id: "try-compression", title: "A text is compressed", at: "?results=compression#/results/r3", steps: ["#try-text=The harbour", "#try-go"], shows: "#try-it .generated", part: "#try-it" },
    { id: "try-targets", title: "Regression targets", at: "?results=regression#/results/r3", steps: ["#choose-file"], shows: "#try-it dl", part: "#try-it" },
    { id: "try-texts", title: "Several texts are continued", at: "?results=language&several#/results/r3", steps: ["#choose-file"], shows: "#try-it tr", part: "#try-it" },
    { id: "try-text", title: "A text is continued", at: "?results=language#/results/r3", steps: ["#try-text=The harbour", "#try-go"], shows: "#try-it .generated", part: "#try-it" },
  ],
  "Language models": [
    { id: "chat", title: "A chat that was not begun", at: "?results=chat#/results/r3", shows: "#chat-text" },
    { id: "chat-answer", title: "An answer appears", at: "?results=chat&slow#/results/r3", steps: ["#chat-text=Write 7/7/2026 as a date in words.", "#chat-send", "[data-answer=trained] .said?"], shows: "#chat-stop", part: "#language-model" },
    { id: "chat-compared", title: "The models before and after training", at: "?results=chat#/results/r3", steps: ["#chat-compare", "#chat-text=Write 7/7/2026 as a date in words.", "#chat-send"], shows: "[data-answer=base][aria-busy=false]", part: "#language-model" },
    { id: "chat-refused", title: "A message that is too long", at: "?results=chat&refuse#/results/r3", steps: ["#chat-text=A long text", "#chat-send"], shows: "#chat .problem", part: "#language-model" },
    { id: "chat-settings", title: "Settings of the answers", at: "?results=chat#/results/r3", steps: ["#chat-settings"], shows: "#chat-seed", part: "#chat .popover .window" },
    { id: "chat-settings-wrong", title: "A setting is no number", at: "?results=chat#/results/r3", steps: ["#chat-settings", "#chat-temperature=warm", "#chat-text=Hello", "#chat-send"], shows: "#chat-problem", part: "#language-model" },
    { id: "questions", title: "No questions yet", at: "?results=chat#/results/r3", steps: ["#show-questions"], shows: "#choose-questions", part: "#language-model" },
    { id: "questions-asked", title: "Questions are asked", at: "?results=chat&slow&dropped=sums.jsonl#/results/r3", shows: "#questions-stop", part: "#language-model" },
    { id: "questions-answered", title: "Before and after training", at: "?results=chat&dropped=sums.jsonl#/results/r3", shows: "#questions-table", part: "#language-model" },
    { id: "questions-refused", title: "A file without questions", at: "?results=chat&dropped=notes.txt#/results/r3", shows: "#questions-problem", part: "#language-model" },
    { id: "prompts", title: "Answers to the prompts after the best evaluation", at: "?results=chat&prompts#/results/r3", steps: ["#show-prompts"], shows: "#answers-best[aria-pressed=true]", part: "#language-model" },
    { id: "prompts-first", title: "Answers to the prompts after the first evaluation", at: "?results=chat&prompts#/results/r3", steps: ["#show-prompts", "#answers-first"], shows: "#answers-first[aria-pressed=true]", part: "#language-model" },
    { id: "export-language", title: "Export of a language model", at: "?results=chat#/results/r3", steps: ["#export-open"], shows: "#export li", part: "#export" },
  ],
  German: [
    { id: "german-chat", title: "The models before and after training", at: "?results=chat&language=de#/results/r3", steps: ["#chat-compare", "#chat-text=Schreibe 7.7.2026 in Worten.", "#chat-send"], shows: "[data-answer=base][aria-busy=false]", part: "#language-model" },
    { id: "german-prompts", title: "Answers to the prompts of a run", at: "?results=chat&prompts&language=de#/results/r3", steps: ["#show-prompts"], shows: "#answers-best[aria-pressed=true]", part: "#language-model" },
    { id: "german-questions", title: "Questions before and after training", at: "?results=chat&dropped=sums.jsonl&language=de#/results/r3", shows: "#questions-table", part: "#language-model" },
    { id: "german-welcome", title: "Runs of the app and the terminal", at: "?language=de", shows: "[data-run-row=r6]" },
    { id: "german-plan", title: "Images in one folder per class", at: "?language=de#/inspection/demo", steps: [images], shows: ".measured #time" },
    { id: "german-conversations", title: "Conversations as the chosen model reads them", at: "?language=de#/inspection/chats", steps: ["#conversations mark?"], shows: "#conversations li:nth-child(3)", part: "#conversations" },
    { id: "german-base-model", title: "Size, licence and memory before the download", at: "?language=de&hub=broken#/inspection/demo", steps: ["#setting-from=…", "#base-none?", "#hub-name=Qwen/Qwen3-0.6B", "#hub-look-up", "#hub-download"], shows: "#base-hub-problem:not(:empty)", part: "#base-model" },
    { id: "german-settings", title: "All settings", at: "?language=de#/inspection/demo", steps: ["#all-settings"], shows: "#all-optimizer", part: "#all-settings-sheet" },
    { id: "german-training", title: "Under memory pressure", at: `${still}&language=de#/run/demo`, shows: "#open-changes" },
    { id: "german-machines", title: "Several machines train one run", at: `${still}&machines&language=de#/run/demo`, shows: "#machines [data-rank='2']", part: "#machines" },
    { id: "german-limits", title: "Memory limits", at: `${still}&language=de#/run/demo`, steps: ["#open-limits", "#limit-cap=6,5"], shows: "#limit-cap", part: ".popover .window" },
    { id: "german-results", title: "Image classification", at: "?language=de#/results/r3", shows: "#mistakes img" },
    { id: "german-longer", title: "Train longer", at: "?language=de#/results/r3", steps: ["#train-longer"], shows: "#epochs-in-all", part: "#train-longer-dialog" },
    { id: "german-palette", title: "Commands", at: "?language=de#/results/r3", steps: ["#export-open:enabled?", palette], shows: "#palette li", part: "#palette" },
  ],
  Dialogs: [
    { id: "export", title: "Export", at: "?#/results/r3", steps: ["#export-open"], shows: "#export li", part: "#export" },
    { id: "export-failed", title: "Export into a read-only folder", at: "?#/results/r3", steps: ["#export-open", "#export-go"], shows: "#export .problem", part: "#export" },
    { id: "palette", title: "Commands", at: "?#/results/r3", steps: ["#export-open:enabled?", palette], shows: "#palette li", part: "#palette" },
    { id: "palette-found", title: "Commands that match", at: "?#/results/r3", steps: [palette, "#palette input=run"], shows: "#palette li", part: "#palette" },
    { id: "palette-not-found", title: "No command matches", at: "?", steps: [palette, "#palette input=zebra"], shows: "#palette li[aria-disabled]", part: "#palette" },
    { id: "train-longer", title: "Train longer", at: "?#/results/r3", steps: ["#train-longer"], shows: "#epochs-in-all", part: "#train-longer-dialog" },
    { id: "train-longer-refused", title: "Fewer epochs than are trained", at: "?#/results/r3", steps: ["#train-longer", "#epochs-in-all=20", "#train-longer-dialog .primary"], shows: "#train-longer-dialog .problem:not(:empty)", part: "#train-longer-dialog" },
    { id: "tags-refused", title: "A tag is refused", at: "?#/results/r3", steps: ["#export-open:enabled?", palette, "[data-command=edit-run]", "#run-tags=shelf, final, shelf", "#edit-run .primary"], shows: "#edit-run .problem:not(:empty)", part: "#edit-run" },
    { id: "rename-taken", title: "Another run has the name", at: "?#/results/r3", steps: ["#export-open:enabled?", palette, "[data-command=edit-run]", "#run-name=grocery shelves", "#edit-run .primary"], shows: "#name-taken:not(:empty)", part: "#edit-run" },
    { id: "rename", title: "Rename, tags and notes", at: "?#/results/r3", steps: ["#export-open:enabled?", palette, "[data-command=edit-run]"], shows: "#edit-run", part: "#edit-run" },
  ],
};

export const allStates = Object.values(states).flat();

/** The address of a state. Without a theme it follows the system. */
export const addressOf = (state: State, theme = "") => {
  const [parameters, hash] = state.at.slice(1).split("#");
  const all = [parameters, `state=${state.id}`, theme && `theme=${theme}`].filter(Boolean);
  return `/?${all.join("&")}#${hash ?? "/"}`;
};
