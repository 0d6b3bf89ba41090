// What is shown of recovery steps, loaded when memory is short.
export { default as PlanRecoverySteps } from "./PlanRecoverySteps.svelte";
export { default as RunRecoverySteps } from "./RunRecoverySteps.svelte";
