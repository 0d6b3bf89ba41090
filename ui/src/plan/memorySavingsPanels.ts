// What is shown of recovery steps, loaded when memory is short.
export { default as PlanMemorySavings } from "./PlanMemorySavings.svelte";
export { default as RunMemorySavings } from "./RunMemorySavings.svelte";
