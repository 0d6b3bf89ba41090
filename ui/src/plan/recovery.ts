// What is shown of recovery steps, loaded when memory is short.
export { default as PlanRecovery } from "./PlanRecovery.svelte";
export { default as RunRecovery } from "./RunRecovery.svelte";
