// Search in pages that were opened from disk. Browsers start no worker there, so that its script runs in a hidden
// frame instead. The theme would load such a script from the network; its name stops it from doing so.
"use strict";

if (location.protocol === "file:") {
  const load = (frame, url) => new Promise((resolve, reject) => {
    const script = frame.document.createElement("script");
    script.onload = resolve;
    script.onerror = () => reject(new Error(`cannot load ${url}`));
    script.src = new URL(url, document.baseURI);
    frame.document.body.append(script);
  });

  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const element = document.createElement("iframe");
      element.hidden = true;
      document.body.append(element);
      this.frame = element.contentWindow;
      this.frame.document.open();
      this.frame.document.write("<!doctype html><body></body>");
      this.frame.document.close();
      this.frame.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", {data})));
      this.frame.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => load(this.frame, next)), Promise.resolve());
      this.ready = load(this.frame, url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
