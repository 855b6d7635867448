// The search where pages are opened from files. Browsers start no worker there: its script runs in a hidden frame.
// The theme asks for window.IFrameWorker to see that it is so.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const { contentWindow, contentDocument } = this.frame;
      contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise(resolve => this.frame.addEventListener("load", resolve));
      contentDocument.open();
      contentDocument.write(`<!doctype html><script src="${encodeURI(decodeURI(url))}"></script>`);
      contentDocument.close();
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
