// The dialogs about a run. They are loaded when one opens.
export { default as edit } from "./EditRun.svelte";
export { default as longer } from "./TrainLonger.svelte";
