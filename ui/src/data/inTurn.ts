/** `ask`, but a call waits until the one before has ended, well or not. */
export const inTurn = <A, T>(ask: (argument: A) => Promise<T>): ((argument: A) => Promise<T>) => {
  let last: Promise<unknown> = Promise.resolve();
  return (argument) => {
    const answer = last.then(() => ask(argument));
    last = answer.catch(() => {});
    return answer;
  };
};
