// The report on one or more runs: the parts of its own page, in its own styles.

import { html, Loaded, useData, useEffect, useRef, useState } from '../base.js'
import * as source from '../source.js'

// The report on some runs, or only its sections with these keys. contents(key) gives the address of a section.
export function Report({ slugs, keys, contents, section }) {
  const state = useData(() => source.report(slugs), [slugs.join('~')])
  return html`<${Loaded} state=${state} what="the report">${page => html`<${Sections} page=${page} keys=${keys} contents=${contents} chosen=${section} />`}<//>`
}

// The colours are those of the viewer: the report's page names them alike.
function Sections({ page, keys, contents, chosen }) {
  const box = useRef()
  const go = key => box.current.shadowRoot.getElementById(key)?.scrollIntoView()
  useEffect(() => {
    const root = box.current.shadowRoot ?? box.current.attachShadow({ mode: 'open' })
    const sections = [...page.querySelectorAll('main > section')].filter(({ id }) => !keys || keys.includes(id))
    const parts = keys ? sections : [...page.querySelectorAll('.lede, nav'), ...sections, page.querySelector('footer')]
    root.replaceChildren(...[page.querySelector('style'), ...parts].map(part => document.importNode(part, true)))
    for (const anchor of root.querySelectorAll('nav a')) {
      const key = anchor.getAttribute('href').slice(1)
      anchor.href = contents(key)
      anchor.onclick = () => go(key)
    }
  }, [page])
  useEffect(() => {
    if (chosen) go(chosen)
  }, [page, chosen])
  return html`<div class="report" ref=${box}></div>`
}

// What is folded is made when it is opened.
export function Fold({ title, names, isOpen = false, children }) {
  const [wasOpened, setOpened] = useState(isOpen)
  return html`<details class="folded" open=${isOpen} onToggle=${event => event.currentTarget.open && setOpened(true)}>
    <summary>${title}${names && html` <span>${names}</span>`}</summary>
    ${wasOpened && children()}
  </details>`
}
