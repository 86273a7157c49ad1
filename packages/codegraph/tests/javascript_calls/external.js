//// functions of packages are not of the archive
//> main -> own
const fs = require("fs");
const lodash = require("lodash");
function own() {}
fs.readFileSync("a");
lodash.map([1], (x) => x);
own();

//// a function of the archive has the name of one outside
//> main -> join
const path = require("path");
function join() {}
path.join("a", "b");
join();

//// a method of an unknown object
//> use -> (nothing); main -> use
class Local {
  close() {}
}
function use(connection) {
  connection.close();
}
use(require("net").connect());

//// a class of outside is extended
//> main -> Bus.constructor, Bus.send
const { EventEmitter } = require("events");
class Bus extends EventEmitter {
  constructor() {
    super();
  }
  send() {
    this.emit("x");
  }
}
const bus = new Bus();
bus.send();
bus.on("x", () => 1);

//// a name that is not declared
//> main -> (nothing)
unknown();
unknown.member();
