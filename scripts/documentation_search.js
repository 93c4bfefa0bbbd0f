// Browsers refuse to start workers for pages that are opened from a folder. There, a hidden frame runs the script of the
// search instead, with the part of a worker's interface that the search uses.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.report(data));
      inside.importScripts = (...scripts) => scripts.forEach((one) => this.load(one));
      this.load(script).onload = () => {
        this.isLoaded = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
    }

    load(script) {
      const element = this.frame.contentDocument.createElement("script");
      element.src = new URL(script, location.href).href;
      this.frame.contentDocument.head.append(element);
      return element;
    }

    report(data) {
      const event = new MessageEvent("message", { data });
      this.onmessage?.(event);
      this.dispatchEvent(event);
    }

    postMessage(data) {
      if (!this.isLoaded) return void this.waiting.push(data);
      const inside = this.frame.contentWindow;
      const event = new MessageEvent("message", { data });
      setTimeout(() => inside.onmessage ? inside.onmessage(event) : inside.dispatchEvent(event));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
