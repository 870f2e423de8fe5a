// Tables that sort, and that are saved as CSV, Parquet and LaTeX.

import { html, useState } from './base.js'
import { save } from './saving.js'

// A column: key, label, value(row) for sorting and files, cell(row) for the page, isNumber, help.
export function Table({ columns, rows, caption, name, sorted, empty = 'Nothing to show.', rowKey, onOpen }) {
  const [order, setOrder] = useState(sorted ?? { key: null, falls: false })
  if (!rows.length) return html`<p class="empty">${empty}</p>`
  const by = columns.find(({ key }) => key === order.key)
  const shown = by ? [...rows].sort((one, other) => compared(valueOf(by, one), valueOf(by, other)) * (order.falls ? -1 : 1)) : rows
  const turn = column => setOrder({ key: column.key, falls: order.key === column.key ? !order.falls : Boolean(column.isNumber) })
  return html`
    <div class="scroll" role="region" tabindex="0" aria-label=${caption}>
      <table>
        <caption>${caption}</caption>
        <thead><tr>${columns.map(column => html`
          <th scope="col" class=${column.isNumber && 'numeric'} aria-sort=${order.key === column.key ? (order.falls ? 'descending' : 'ascending') : 'none'}>
            <button type="button" class="sort" title=${column.help} onClick=${() => turn(column)}>${column.label}</button>
          </th>`)}</tr></thead>
        <tbody>${shown.map((row, place) => html`
          <tr key=${rowKey ? rowKey(row) : place} onDblClick=${onOpen && (() => onOpen(row))}>${columns.map((column, number) => html`
            <${number ? 'td' : 'th'} scope=${number ? undefined : 'row'} class=${column.isNumber && 'numeric'}>${column.cell ? column.cell(row) : valueOf(column, row)}<//>`)}
          </tr>`)}</tbody>
      </table>
    </div>
    <${SaveTable} columns=${columns} rows=${shown} caption=${caption} name=${name} />`
}

export const valueOf = (column, row) => (column.value ? column.value(row) : row[column.key])

// Missing values come last in rising order.
function compared(one, other) {
  const [hasOne, hasOther] = [one, other].map(value => value !== null && value !== undefined && !Number.isNaN(value))
  if (!hasOne || !hasOther) return Number(hasOther) - Number(hasOne)
  if (typeof one === 'number' && typeof other === 'number') return one - other
  return String(one).localeCompare(String(other), 'en', { numeric: true })
}

// rows: an array, or a function that returns a promise of one.
export function SaveTable({ columns, rows, caption, name }) {
  const asked = async format => save(format, { columns, rows: typeof rows === 'function' ? await rows() : rows, caption, name: name ?? 'table', valueOf })
  return html`<p class="saves">Save the table: ${['csv', 'parquet', 'tex'].map(format => html`
    <button type="button" class="quiet" onClick=${() => asked(format)} aria-label=${`Save ${caption ?? 'the table'} as ${NAMES[format]}`}>${NAMES[format]}</button>`)}</p>`
}

const NAMES = { csv: 'CSV', parquet: 'Parquet', tex: 'LaTeX' }

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
