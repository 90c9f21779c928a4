// Browsers start no workers for pages opened from a folder (file://), and the search is a worker. There, and only
// there, the worker's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow;
      this.ready = new Promise((resolve, reject) => {
        inside.document.open();
        inside.document.write("<!doctype html><body></body>");
        inside.document.close();
        inside.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => load(next)), Promise.resolve());
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        load(url).then(() => resolve(inside), reject);
      });
      function load(source) {
        return new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          script.src = source;
          script.onload = resolve;
          script.onerror = reject;
          inside.document.body.appendChild(script);
        });
      }
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {}
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
