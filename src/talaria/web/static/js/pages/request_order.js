/**
 * Answers in order: what a page asks again and again may be answered the other way round.
 * @module
 */

/**
 * A function to call with every question: it returns one that takes the answer, unless a newer one was taken. It is for
 * the same question asked again and again: to wait for the newest could take forever.
 */
export function acceptInOrder() {
  let last = 0;
  let accepted = 0;
  return () => {
    const number = ++last;
    return () => {
      const isNewer = number > accepted;
      if (isNewer) accepted = number;
      return isNewer;
    };
  };
}

/** A function that never runs twice at a time: called meanwhile, it runs once more afterwards. @param {() => Promise<unknown>} action */
export function oneAtATime(action) {
  let isRunning = false;
  let isCalled = false;
  return async () => {
    isCalled = true;
    if (isRunning) return;
    isRunning = true;
    try {
      while (isCalled) {
        isCalled = false;
        await action();
      }
    } finally {
      isRunning = false;
    }
  };
}
