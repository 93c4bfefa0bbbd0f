/**
 * Order of repeated requests, whose responses may arrive out of order.
 * @module
 */

/**
 * Create a function to call before each request. It returns a function that accepts the response, unless that of a newer
 * request was accepted. For a request that is repeated often: to wait for the newest response could take forever.
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

/** Create a function that runs an action one at a time: calls during a run lead to one more run after it. @param {() => Promise<unknown>} action */
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
