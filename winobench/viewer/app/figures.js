// Figures: SVG of documents, plots made here, and buttons that save both.

import { html, useEffect, useRef } from './base.js'
import { saveFigure } from './saving.js'

const ELEMENTS = new Set(['svg', 'g', 'path', 'rect', 'circle', 'line', 'polyline', 'polygon', 'ellipse', 'text', 'tspan', 'title', 'desc', 'defs', 'clipPath', 'use', 'style'])
const ATTRIBUTES = /^(?:d|id|class|x|y|x1|x2|y1|y2|cx|cy|r|rx|ry|dx|dy|width|height|viewBox|points|transform|style|fill|fill-opacity|fill-rule|stroke|stroke-width|stroke-opacity|stroke-dasharray|stroke-dashoffset|stroke-linecap|stroke-linejoin|stroke-miterlimit|opacity|clip-path|clip-rule|font-family|font-size|font-weight|font-style|text-anchor|dominant-baseline|role|aria-label|aria-labelledby|aria-hidden|preserveAspectRatio)$/

// An SVG text of a document as elements: only those that draw.
function imported(text) {
  const parsed = new DOMParser().parseFromString(text.includes('xmlns=') ? text : text.replace('<svg', '<svg xmlns="http://www.w3.org/2000/svg"'), 'image/svg+xml')
  return parsed.documentElement.localName === 'svg' ? copied(parsed.documentElement) : null
}

function copied(element) {
  if (!ELEMENTS.has(element.localName)) return null
  const copy = document.createElementNS('http://www.w3.org/2000/svg', element.localName)
  for (const { localName, value } of element.attributes) {
    if (localName === 'href' ? value.startsWith('#') : ATTRIBUTES.test(localName) && !/url\((?!["']?#)/i.test(value)) copy.setAttribute(localName, value)
  }
  for (const child of element.childNodes) {
    const made = child.nodeType === Node.ELEMENT_NODE ? copied(child) : child.nodeType === Node.TEXT_NODE ? document.createTextNode(child.data) : null
    if (made) copy.append(made)
  }
  return copy
}

// A figure with its title and buttons. make() returns an SVG element, or a promise of one; keys say when it is made anew.
export function Figure({ title, name, make, keys, width }) {
  const box = useRef()
  useEffect(() => {
    let isCurrent = true
    Promise.resolve(make()).then(element => isCurrent && element && box.current?.replaceChildren(element))
    return () => { isCurrent = false }
  }, keys)
  const saved = kind => saveFigure(kind, box.current.querySelector('svg'), name)
  return html`<figure style=${width && `max-width: ${width}px`}>
    <figcaption>${title}</figcaption>
    <div class="plot" ref=${box}></div>
    <p class="saves">${['svg', 'png'].map(kind => html`<button type="button" class="quiet" aria-label=${`Save ${title} as ${kind.toUpperCase()}`} onClick=${() => saved(kind)}>${kind.toUpperCase()}</button>`)}</p>
  </figure>`
}

// A panel of a report document.
export function Panel({ panel, name }) {
  return html`<${Figure} title=${panel.title} name=${name} width=${panel.width * 96 * 1.18} keys=${[panel.svg]} make=${() => imported(panel.svg)} />`
}

let library
// Observable Plot, which is loaded when the first plot is made.
export function plotting() {
  library ??= (async () => {
    for (const file of ['d3/d3.min.js', 'plot/plot.umd.min.js']) await loaded(`vendor/${file}`)
    return globalThis.Plot
  })()
  return library
}

function loaded(address) {
  return new Promise((resolve, reject) => {
    const script = document.createElement('script')
    Object.assign(script, { src: address, onload: resolve, onerror: () => reject(new Error('The library of figures could not be loaded: reload the page.')) })
    document.head.append(script)
  })
}
