// Tables that sort, and that are saved as CSV, Parquet and LaTeX.

import { Fragment, html, useEffect, useMemo, useState } from './base.js'
import { contentOf, save, valueOf } from './saving.js'

export { valueOf }

// A column: key, label, value(row) for sorting and files, cell(row) for the page, text(row) for LaTeX and, without cell,
// for the page, parts (key -> value(row)) for further columns of data files, isNumber, help.
// isStacked: rows become cards on narrow screens. isForReading: not in data files. isFixed: does not sort, and is in no file.
// nested(row) gives rows below a row, which are shown when they are asked for. size is the number of rows of a page.
export function Table({ columns, rows, caption, name, sorted, empty = 'Nothing to show.', rowKey, rowClass, nested, isOpen, size, isQuiet, isStacked }) {
  const [order, setOrder] = useState(sorted ?? { key: null, falls: false })
  const [page, setPage] = useState(0)
  const [opened, setOpened] = useState(() => new Set())
  const by = columns.find(({ key }) => key === order.key)
  const ordered = useMemo(() => (by ? inOrder(rows, by, order.falls) : rows), [rows, columns, order])
  useEffect(() => setPage(0), [order, rows.length])
  if (!rows.length) return html`<p class="empty">${empty}</p>`
  const header = columns.find(({ isFixed }) => !isFixed)
  const keyOf = (row, index) => (rowKey ? rowKey(row) : index)
  const hasParts = row => Boolean(nested?.(row)?.length)
  const partsOf = (row, index) => (isOpen || opened.has(keyOf(row, index)) ? nested?.(row) ?? [] : [])
  const toggle = key => setOpened(before => {
    const next = new Set(before)
    if (!next.delete(key)) next.add(key)
    return next
  })
  const turn = column => {
    setOrder({ key: column.key, falls: order.key === column.key ? !order.falls : Boolean(column.isNumber) })
  }
  const shown = size ? ordered.slice(page * size, (page + 1) * size) : ordered
  const line = (row, key, button, isPart) => html`
    <tr key=${key} class=${[isPart && 'part', rowClass?.(row)].filter(Boolean).join(' ') || undefined}>${columns.map(column => html`
      <${column === header ? 'th' : 'td'} scope=${column === header ? 'row' : undefined} data-label=${column.label} class=${[column.isNumber && 'numeric', column.style].filter(Boolean).join(' ') || undefined}>${column === header && button}${shownCell(column, row)}<//>`)}
    </tr>`
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label=${caption}>
      <table class=${isStacked && 'stacks'}>
        <caption class=${isQuiet && 'unseen'}>${caption}</caption>
        <thead><tr>${columns.map(column => html`
          <th scope="col" class=${column.isNumber && 'numeric'} aria-sort=${order.key === column.key ? (order.falls ? 'descending' : 'ascending') : undefined}>
            ${column.isFixed ? html`<span class="unseen">${column.label}</span>` : html`<button type="button" class="sort" title=${column.help} onClick=${() => turn(column)}>${column.heading ?? column.label}</button>`}
          </th>`)}</tr></thead>
        <tbody>${shown.map((row, index) => {
          const key = keyOf(row, index)
          const isWide = opened.has(key) || isOpen
          const button = nested && !isOpen && (!hasParts(row) ? html`<span class="fold-space"></span>` : html`<button type="button" class="fold" aria-expanded=${isWide ? 'true' : 'false'} onClick=${() => toggle(key)} aria-label="Parts of this row">${isWide ? '▾' : '▸'}</button>`)
          return html`<${Fragment} key=${key}>
            ${line(row, key, button)}
            ${partsOf(row, index).map((part, number) => line(part, `${key}/${number}`, null, true))}
          <//>`
        })}</tbody>
      </table>
    </div>
    ${size && html`<${Pages} total=${ordered.length} size=${size} page=${page} onPage=${setPage} />`}
    <${SaveTable} columns=${columns} rows=${() => ordered.flatMap(row => [row, ...(nested?.(row) ?? [])])} caption=${caption} name=${name} />`
}

const shownCell = (column, row) => (column.cell ? column.cell(row) : column.text ? column.text(row) : valueOf(column, row))

function inOrder(rows, column, falls) {
  const keyed = rows.map(row => [valueOf(column, row), row])
  return keyed.sort(([one], [other]) => compared(one, other, falls)).map(([, row]) => row)
}

const isMissing = value => value === null || value === undefined || Number.isNaN(value)
const { compare } = new Intl.Collator('en', { numeric: true })

// Missing values come last in both orders.
function compared(one, other, falls) {
  if (isMissing(one) || isMissing(other)) return isMissing(one) - isMissing(other)
  const order = typeof one === 'number' && typeof other === 'number' ? one - other : compare(String(one), String(other))
  return falls ? -order : order
}

const NAMES = { csv: 'CSV', parquet: 'Parquet', tex: 'LaTeX' }

// Buttons that save a table. rows: an array, or a function that returns (a promise of) one.
export function SaveTable({ columns, rows, caption, name = 'table' }) {
  const written = columns.filter(({ isFixed }) => !isFixed)
  const make = async () => contentOf(written, typeof rows === 'function' ? await rows() : rows, caption)
  return html`<p class="saves"><span>Save the table:</span> ${Object.entries(NAMES).map(([format, label]) => html`
    <button type="button" class="quiet" onClick=${async () => save(format, name, await make())} aria-label=${`Save ${caption || name} as ${label}`}>${label}</button>`)}</p>`
}

const COLOURS = 7
const LEAST = 1.5

// A number and its interval between two ends, with a line at chance (or at another value).
export function Bar({ value, low, high, chance, from = 0, to = 1, run = 0 }) {
  if ([value, low, high].some(isMissing)) return null
  const position = number => 100 * Math.min(1, Math.max(0, (number - from) / (to - from)))
  const width = Math.max(LEAST, position(high) - position(low))
  return html`<svg class=${`bar run-${run % COLOURS}`} viewBox="0 0 100 10" width="100" height="10" aria-hidden="true">
    <path class="track" d="M0 5h100" />
    ${!isMissing(chance) && html`<path class="chance" d=${`M${position(chance)} 0v10`} />`}
    <rect class="span" x=${position(low)} y="3" width=${width} height="4" rx="1" /><circle cx=${position(value)} cy="5" r="3" />
  </svg>`
}

// Buttons that turn the pages of a long list.
export function Pages({ total, size, page, onPage }) {
  const last = Math.max(0, Math.ceil(total / size) - 1)
  if (!last) return null
  return html`<nav class="pages" aria-label="Pages of the list">
    <button type="button" disabled=${page <= 0} onClick=${() => onPage(page - 1)}>Previous</button>
    <span>Page ${page + 1} of ${last + 1}</span>
    <button type="button" disabled=${page >= last} onClick=${() => onPage(page + 1)}>Next</button>
  </nav>`
}
