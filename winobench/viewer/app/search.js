// Asks the worker that searches whole tables.

let worker
let last = 0
const waiting = new Map()

function started() {
  const made = new Worker('search_worker.js', { type: 'module' })
  made.onmessage = ({ data: { number, value, error } }) => {
    const { resolve, reject } = waiting.get(number)
    waiting.delete(number)
    if (error === undefined) resolve(value)
    else reject(new Error(error))
  }
  made.onerror = event => {
    event.preventDefault()
    for (const { reject } of waiting.values()) reject(new Error('The search could not be started: reload the page.'))
    waiting.clear()
    worker = undefined
  }
  return made
}

function ask(action, given) {
  worker ??= started()
  const number = ++last
  return new Promise((resolve, reject) => {
    waiting.set(number, { resolve, reject })
    worker.postMessage({ number, action, given })
  })
}

export const find = given => ask('find', given)
export const read = given => ask('read', given)
export const places = given => ask('places', given)
export const groups = given => ask('groups', given)
export const nextWrong = given => ask('nextWrong', given)
export const alike = given => ask('alike', given)
export const similar = given => ask('similar', given)
export const flips = given => ask('flips', given)
